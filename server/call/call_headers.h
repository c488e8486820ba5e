// The headers of a call, and facts that are known before its messages.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/support/string_ref.h"
#include "server/base/peer_kind.h"

namespace posenc::server {

// The headers do not change from the arrival of the call to its end.
class CallHeaders final {
 public:
  using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

  // `context` belongs to a call that has arrived, and must outlive this object.
  explicit CallHeaders(const grpc::GenericServerContext* context);

  // Returns the path, for example
  // "/posenc.v1.PositionalEncodingService/ApplyRope".
  absl::string_view method() const { return context_->method(); }
  // Returns gRPC's text of the peer, for example "ipv4:10.0.0.7:40123". All
  // peers of a unix socket have the same text.
  const std::string& peer() const { return peer_; }
  PeerKind peer_kind() const { return peer_kind_; }
  // Returns a hash of peer(). All calls of one TCP connection have one hash.
  // All calls over unix sockets have one hash, too.
  std::uint64_t peer_id() const { return peer_id_; }

  // Returns the client's metadata, unchanged. Names are in lower case.
  const Metadata& metadata() const { return context_->client_metadata(); }
  static absl::string_view View(grpc::string_ref text) {
    return {text.data(), text.size()};
  }
  // Returns the first value of the metadata `name`, or nullopt without one.
  std::optional<absl::string_view> Find(absl::string_view name) const;

  // Returns whether the client has set a deadline.
  bool has_deadline() const;
  // Returns the time until the deadline. It is negative after the deadline, and
  // infinite without a deadline.
  absl::Duration TimeLeft() const;

 private:
  const grpc::GenericServerContext* const context_;
  const std::string peer_;
  const PeerKind peer_kind_;
  const std::uint64_t peer_id_;
};

// Returns the size that the client has announced for its largest message, or
// nullopt without an announcement. Returns INVALID_ARGUMENT if the text is not
// a number, and kMessageTooLarge if the size exceeds the limit.
absl::StatusOr<std::optional<std::int64_t>> AnnouncedBytes(
    const CallHeaders& headers, std::int64_t limit);

// Properties of a method that are known before it is called.
struct MethodTraits {
  absl::string_view service;  // "posenc.v1.PositionalEncodingService"
  absl::string_view name;     // "ApplyRope"
  bool stream = false;        // of requests, responses or both
  // Whether a full server returns UNAVAILABLE instead of RESOURCE_EXHAUSTED,
  // for clients that retry only after UNAVAILABLE.
  bool full_is_unavailable = false;
  // Whether messages have at most 4 KiB, so that calls need no place and no
  // claim. Such calls are answered during a drain, too.
  bool exempt = false;
  bool observed = true;  // metrics, log and traces record its calls
};

struct CallSpec : MethodTraits {
  int method = 0;           // index of the method
  std::uint64_t party = 0;  // as in Places::Request
  std::string caller;       // name of the token; empty without tokens
  // Limit for the bytes in flight of all calls of this caller; 0 means no
  // limit.
  std::int64_t caller_bytes = 0;
};

}  // namespace posenc::server
