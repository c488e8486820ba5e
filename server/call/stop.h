// The reason to end a call before it is answered: its client is gone, its
// deadline has passed, or other calls need its memory.

#pragma once

#include <algorithm>
#include <atomic>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "server/call/loop.h"

namespace posenc::server {

// Must be used on the call's thread, except for Check().
class Stop {
 public:
  // One of the call's waits. Request() ends it early, if that is still
  // possible.
  class Pending : public Loop::Event {
   public:
    // Ends the wait, if that is still possible. The event then happens soon.
    virtual void GiveUp() = 0;

   protected:
    ~Pending() = default;
  };

  // Requests the stop; only the first request counts. Tick() and the call's
  // coroutines may call Request(), because no coroutine resumes before it
  // returns.
  void Request(const absl::Status& why) {
    if (requested()) return;
    why_ = why;
    requested_.store(true);
    for (Pending* const wait : waits_) wait->GiveUp();
  }
  bool requested() const { return requested_.load(std::memory_order_relaxed); }
  // Returns the reason for the stop, or OK if no stop was requested.
  const absl::Status& why() const { return why_; }

  // Returns an error after the stop was requested; the client does not see this
  // error. May be called on any thread that computes for the call.
  absl::Status Check() const {
    if (!requested()) return absl::OkStatus();
    return absl::CancelledError("the call has ended");
  }

  void Add(Pending* wait) { waits_.push_back(wait); }
  void Remove(Pending* wait) {
    waits_.erase(std::find(waits_.begin(), waits_.end(), wait));
  }

 private:
  std::atomic<bool> requested_{false};
  absl::Status why_;
  // Has space for the three coroutines of a stream. So a wait allocates no
  // memory, and cannot fail after it has begun.
  absl::InlinedVector<Pending*, 3> waits_;
};

}  // namespace posenc::server
