// Time for waits and durations. A change of the system's clock has no effect.

#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace posenc::server {

// Returns the time since an arbitrary start. This time never goes back.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace posenc::server
