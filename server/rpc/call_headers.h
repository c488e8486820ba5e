// What the headers of a call say. They stay as they are from the call's arrival
// to its end.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "grpc/grpc.h"

namespace posenc::server {

class CallHeaders final {
 public:
  CallHeaders();
  ~CallHeaders();
  CallHeaders(const CallHeaders&) = delete;
  CallHeaders& operator=(const CallHeaders&) = delete;

  // "/posenc.v1.PositionalEncodingService/ApplyRope"
  absl::string_view method() const { return View(details_.method); }
  // "ipv4:10.0.0.7:40123"; all peers of a unix socket have the same.
  const std::string& peer() const { return peer_; }
  // A hash of peer(): the same for all calls of one connection over TCP, and
  // for all calls over unix sockets.
  std::uint64_t peer_id() const { return peer_id_; }

  // What the client has added, as it came. Names are in lower case.
  absl::Span<const grpc_metadata> metadata() const {
    return {metadata_.metadata, metadata_.count};
  }
  static absl::string_view View(const grpc_slice& slice) {
    return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
            GRPC_SLICE_LENGTH(slice)};
  }
  // The first value of that name; nullopt if there is none.
  std::optional<absl::string_view> Find(absl::string_view name) const;

  // Whether the client has said when it gives the call up.
  bool has_deadline() const;
  // How long the call may have waited in its socket before it was read: its
  // caller's deadline is sooner by as much. gRPC counts it from the reading.
  absl::Duration waited() const { return waited_; }
  // The time until then; negative if it has passed, infinite without deadline.
  absl::Duration TimeLeft() const;

 private:
  friend class PeerStream;

  grpc_call_details details_;
  grpc_metadata_array metadata_;
  std::string peer_;
  std::uint64_t peer_id_ = 0;
  absl::Duration waited_ = absl::ZeroDuration();
};

}  // namespace posenc::server
