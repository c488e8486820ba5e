#include "server/rpc/turn.h"

#include <utility>

namespace posenc::server {

// The lock is held while Turns is asked, so that TurnCame() on another thread
// finds the state that it changes.
Turns::Entry CallTurn::Enter(const Turns::Request& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Turns::Entry entry = turns_->Enter(request, this);
  if (entry == Turns::Entry::kServed) state_ = State::kHeld;
  if (entry == Turns::Entry::kWaiting) state_ = State::kWaiting;
  return entry;
}

bool CallTurn::StopWaiting() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ != State::kWaiting || !turns_->StopWaiting(this)) return false;
  state_ = State::kNone;
  return true;
}

void CallTurn::Leave(std::int64_t moved, double computing) {
  if (state() == State::kNone) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (state_ != State::kHeld) return;
    state_ = State::kNone;
  }
  turns_->Leave(this, moved, computing);
}

void CallTurn::TurnCame() {
  const std::shared_ptr<void> keep = owner_->KeepAlive();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    state_ = State::kHeld;
  }
  owner_->OnTurn();
}

void CallTurn::TurnLost() {
  const std::shared_ptr<void> keep = owner_->KeepAlive();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    state_ = State::kNone;
  }
  owner_->OnTurnLost();
}

}  // namespace posenc::server
