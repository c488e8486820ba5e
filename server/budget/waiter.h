// A call that waits for a place, for memory, or for news.

#pragma once

#include "absl/status/status.h"

namespace posenc::server {

class Waiter {
 public:
  // The wait is over: OK, or why it was in vain. Called once, on any thread,
  // perhaps under a lock of the caller's: must return at once, and wakes
  // whoever waits on another thread or later.
  virtual void Resume(const absl::Status& result) = 0;

 protected:
  ~Waiter() = default;
};

}  // namespace posenc::server
