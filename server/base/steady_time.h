// Time for waits and durations. Setting the system's clock does not change it.

#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace posenc::server {

// Counts from an arbitrary start, and never goes back.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace posenc::server
