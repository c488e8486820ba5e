// Time for waits and durations. Setting the system's clock does not change this
// time.

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
