// Why a call is to end before it is answered: its client is gone, its deadline
// has passed, or others need its memory.

#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/status/status.h"
#include "server/rpc/loop.h"

namespace posenc::server {

// For the call's thread, except for Check().
class Stop {
 public:
  // What a call waits for and may give up.
  class Wait : public Loop::Event {
   public:
    // Gives it up: if that is still possible, the event happens soon.
    virtual void GiveUp() = 0;

   protected:
    ~Wait() = default;
  };

  // The first request counts. Tick() and coroutines of the call may ask for it:
  // nothing is resumed before this returns.
  void Request(const absl::Status& why) {
    if (requested()) return;
    why_ = why;
    requested_.store(true);
    for (Wait* const wait : waits_) wait->GiveUp();
  }
  bool requested() const { return requested_.load(std::memory_order_relaxed); }
  // OK before a request.
  const absl::Status& why() const { return why_; }

  // For any thread that computes for the call. Not OK once the stop was
  // requested; nobody sees this error.
  absl::Status Check() const {
    if (!requested()) return absl::OkStatus();
    return absl::CancelledError("the call has ended");
  }

  void Add(Wait* wait) { waits_.push_back(wait); }
  void Remove(Wait* wait) {
    waits_.erase(std::find(waits_.begin(), waits_.end(), wait));
  }

 private:
  std::atomic<bool> requested_{false};
  absl::Status why_;
  std::vector<Wait*> waits_;
};

}  // namespace posenc::server
