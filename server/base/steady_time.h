// Time for waits and durations, which nobody sets.

#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace posenc::server {

// Counts from a start of its own, and never back.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace posenc::server
