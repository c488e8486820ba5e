// Counts the calls in progress, so that a drain can wait until there are none.

#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace posenc::server {

// Safe for many threads.
class CallsInProgress {
 public:
  void Add(int n) {
    if (count_.fetch_add(n) + n != 0) return;
    // A thread in AwaitNone() must not miss the notification between its check
    // of the count and its wait. So this function takes the lock before it
    // notifies.
    { const std::lock_guard<std::mutex> lock(mutex_); }
    none_.notify_all();
  }
  // Returns false if calls are still in progress after `timeout`.
  bool AwaitNone(absl::Duration timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    return none_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                          [this] { return count() == 0; });
  }

  int count() const { return count_.load(); }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  std::atomic<int> count_{0};
};

}  // namespace posenc::server
