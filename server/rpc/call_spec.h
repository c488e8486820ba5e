// A call as its headers describe it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/rpc/call_headers.h"
#include "server/rpc/call_observer.h"

namespace posenc::server {

// What is known of a method before it is called.
struct MethodTraits {
  absl::string_view service;  // "posenc.v1.PositionalEncodingService"
  absl::string_view name;     // "ApplyRope"
  bool stream = false;        // of requests, responses or both
  // How a server that is full says so: RESOURCE_EXHAUSTED, or UNAVAILABLE where
  // clients retry that alone.
  bool full_is_unavailable = false;
  // Messages of 4 KiB at most: its calls need no place and no claim, and are
  // answered during a drain, too.
  bool small = false;
  bool observed = true;  // by metrics, log and traces
};

struct CallSpec : MethodTraits {
  int method = 0;          // its number
  std::uint64_t peer = 0;  // who shares with others: see Places
  std::string caller;      // the name of its token; empty without tokens
  // Bytes that all calls of this caller may have in flight; 0: no limit.
  std::int64_t caller_bytes = 0;
};

// Whether the status says that the server is full.
bool IsOverload(const absl::Status& status);

// The status as the call's client is told it.
absl::Status AsTold(const CallSpec& spec, const absl::Status& status);

// The announced size of the largest message, if the client announced one.
// INVALID_ARGUMENT for what is no number, kMessageTooLarge over the limit.
absl::StatusOr<std::optional<std::int64_t>> AnnouncedBytes(
    const CallHeaders& headers, std::int64_t limit);

// What observers learn of a call that ended with `status`, as the client was
// told it, whose ReasonName() is `reason`, but for its times and bytes. Borrows
// them all.
CallRecord RecordOf(const CallHeaders& headers, const CallSpec& spec,
                    const absl::Status& status, absl::string_view reason);

}  // namespace posenc::server
