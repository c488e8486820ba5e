// A call that waits for a place, for memory, or for news from another thread
// (CallHandler).

#pragma once

#include "absl/status/status.h"

namespace posenc::server {

class Waiter {
 public:
  // Ends the wait. `result` is OK, or the reason why the wait failed. Called
  // only once, on any thread, perhaps while this thread holds a lock. So this
  // function must return immediately, and resume the waiting code on another
  // thread or later.
  virtual void Resume(const absl::Status& result) = 0;

 protected:
  ~Waiter() = default;
};

}  // namespace posenc::server
