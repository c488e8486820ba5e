// Counts the calls in progress, so that a drain can wait until there are none.

#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace posenc::server {

// Safe for many threads.
class CallsInProgress {
 public:
  void Add(int n) {
    const std::lock_guard<std::mutex> lock(mutex_);
    count_ += n;
    if (count_ == 0) none_.notify_all();
  }
  // False if some are still in progress after `timeout`.
  bool AwaitNone(absl::Duration timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    return none_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                          [this] { return count_ == 0; });
  }

  int count() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return count_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

}  // namespace posenc::server
