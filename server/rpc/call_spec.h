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

// Properties of a method that are known before it is called.
struct MethodTraits {
  absl::string_view service;  // "posenc.v1.PositionalEncodingService"
  absl::string_view name;     // "ApplyRope"
  bool stream = false;        // requests, responses or both
  // Whether a full server returns UNAVAILABLE, for clients that retry only
  // that, instead of RESOURCE_EXHAUSTED.
  bool full_is_unavailable = false;
  // Whether messages have at most 4 KiB: then calls need no place and no claim,
  // and are answered during a drain, too.
  bool exempt = false;
  bool observed = true;  // by metrics, log and traces
};

struct CallSpec : MethodTraits {
  int method = 0;           // number of the method
  std::uint64_t party = 0;  // as in Places::Request
  std::string caller;       // name of its token; empty without tokens
  // Bytes that all calls of this caller may have in flight; 0: no limit.
  std::int64_t caller_bytes = 0;
};

// Returns whether the status says that the server is full.
bool IsOverload(const absl::Status& status);

// Returns the status that the call's client gets.
absl::Status AsTold(const CallSpec& spec, const absl::Status& status);

// Returns the announced size of the largest message, if there is one.
// INVALID_ARGUMENT if it is no number, kMessageTooLarge over the limit.
absl::StatusOr<std::optional<std::int64_t>> AnnouncedBytes(
    const CallHeaders& headers, std::int64_t limit);

// Returns the record of a call for observers, without its times and bytes.
// `status` is the client's, and `reason` its ReasonName(). Borrows all
// arguments.
CallRecord RecordOf(const CallHeaders& headers, const CallSpec& spec,
                    const absl::Status& status, absl::string_view reason);

}  // namespace posenc::server
