// Allows a burst of events, and then a fixed number of events per second.

#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>

#include "absl/time/time.h"

namespace posenc::server {

// Thread-safe.
class RateLimit {
 public:
  RateLimit(double at_once, double per_second)
      : at_once_(at_once), per_second_(per_second), left_(at_once) {}

  // If the event is allowed, returns how many events were refused since the
  // last allowed event. If the event is refused, returns nullopt. `now` may be
  // earlier than in the last call.
  std::optional<std::int64_t> Allow(absl::Time now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const double passed = absl::ToDoubleSeconds(now - last_);
    last_ = now;
    left_ = std::min(at_once_, left_ + std::max(0.0, passed) * per_second_);
    if (left_ < 1) {
      ++refused_;
      return std::nullopt;
    }
    left_ -= 1;
    const std::int64_t refused = refused_;
    refused_ = 0;
    return refused;
  }

 private:
  const double at_once_;
  const double per_second_;
  std::mutex mutex_;
  double left_;
  absl::Time last_ = absl::UnixEpoch();
  std::int64_t refused_ = 0;
};

}  // namespace posenc::server
