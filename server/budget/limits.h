// Limits that a server enforces on its calls: sizes, numbers and times.
//
// This is the only place that holds them. ServerOptions carries a Limits from
// the flags to the service, which fills in what 0 stands for and lends it to
// calls and methods.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace posenc::server {

// The most that protobuf can frame: 2 GiB - 1.
inline constexpr std::int64_t kMaxProtobufBytes = (std::int64_t{1} << 31) - 1;

struct Limits {
  // Bytes of the largest message that is accepted, and that is sent: 1 to
  // kMaxProtobufBytes.
  std::int64_t max_request_bytes = std::int64_t{512} << 20;
  std::int64_t max_response_bytes = std::int64_t{512} << 20;

  // The budget: bytes of requests and responses in flight at any time. Calls
  // wait until they fit before they are read. 0 stands for half of the memory
  // that the process may use, but at least one message each way.
  std::int64_t in_flight_bytes = 0;

  // Calls that may wait for the budget, and as many for their turn; a call
  // beyond them is refused.
  std::int64_t max_waiting = 1024;

  // Of the budget: what the callers with one token may claim at any time. 0: as
  // much as there is. A token may have a number of its own.
  std::int64_t in_flight_bytes_per_token = 0;

  // Deadline of a call whose client set none.
  absl::Duration default_deadline = absl::Minutes(5);

  // Threads for computations. 0 stands for as many as there are usable cores.
  int threads = 0;
};

// INVALID_ARGUMENT if a limit is out of its range; the field is the flag's name
// ("--max-request-bytes").
absl::Status CheckLimits(const Limits& limits);

// The same limits with the values that 0 stands for.
Limits WithDefaults(Limits limits);

}  // namespace posenc::server
