// Limits of a server's calls: sizes, numbers and times. The code that uses a
// limit enforces it.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace posenc::server {

// Largest message of protobuf: 2 GiB - 1.
inline constexpr std::int64_t kMaxProtobufBytes = (std::int64_t{1} << 31) - 1;

struct Limits {
  // Sizes of the largest request that is accepted, and of the largest response
  // that is sent: 1 to kMaxProtobufBytes.
  std::int64_t max_request_bytes = std::int64_t{512} << 20;
  std::int64_t max_response_bytes = std::int64_t{512} << 20;

  // The budget: bytes of requests and responses in flight at any time. 0 means
  // half of the memory that the process may use, but at least one request and
  // one response of the largest size.
  std::int64_t in_flight_bytes = 0;

  // Number of calls that may wait for the budget, and number of unary calls
  // that may wait for a place (Places). A call whose message is already read
  // may always wait for a place. Other further calls are refused.
  std::int64_t max_waiting = 1024;

  // Limit for the bytes of the budget that all calls of one token name claim
  // together. 0 means no limit. The token file may set another limit.
  std::int64_t in_flight_bytes_per_token = 0;

  // Deadline of a call whose client sets no deadline.
  absl::Duration default_deadline = absl::Minutes(5);

  // Number of threads for computations. 0 means one for each usable core.
  int threads = 0;
};

// Returns INVALID_ARGUMENT if the budget is smaller than the largest request.
// config/keys.cc checks the range of each single limit.
absl::Status CheckLimits(const Limits& limits);

// Returns `limits` with zeros replaced by defaults.
Limits WithDefaults(Limits limits);

}  // namespace posenc::server
