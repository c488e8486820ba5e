// The headers of a call. They do not change from the call's arrival to its end.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/support/string_ref.h"

namespace posenc::server {

class CallHeaders final {
 public:
  using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

  // context: of a call that has arrived; outlives this.
  explicit CallHeaders(const grpc::GenericServerContext* context);

  // Returns for example "/posenc.v1.PositionalEncodingService/ApplyRope".
  absl::string_view method() const { return context_->method(); }
  // Returns "ipv4:10.0.0.7:40123"; the same for all peers of a unix socket.
  const std::string& peer() const { return peer_; }
  // Returns a hash of peer(): the same for all calls of one TCP connection, and
  // for all calls over unix sockets.
  std::uint64_t peer_id() const { return peer_id_; }

  // Returns the client's metadata, unchanged. Names are in lower case.
  const Metadata& metadata() const { return context_->client_metadata(); }
  static absl::string_view View(grpc::string_ref text) {
    return {text.data(), text.size()};
  }
  // Returns the first value of that name; nullopt if there is none.
  std::optional<absl::string_view> Find(absl::string_view name) const;

  // Returns whether the client has set a deadline.
  bool has_deadline() const;
  // Returns the time until the deadline; negative if it has passed, infinite
  // without deadline.
  absl::Duration TimeLeft() const;

 private:
  const grpc::GenericServerContext* const context_;
  const std::string peer_;
  const std::uint64_t peer_id_;
};

}  // namespace posenc::server
