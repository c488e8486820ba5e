// One call's turn: what Turns knows of it, from its headers to its end.
//
// A unary call takes its turn before it is read and keeps it until it is done.
// A stream takes one for each response that it computes. A unary call that was
// taken for cheap, and turns out to have a large message, takes one before it
// computes.
//
// States, under the lock:
//
//   kNone --Enter--> kWaiting --its turn came--> kHeld --Leave--> kNone
//     ^-------------'   '---lost, or stopped---> kNone
//
// Threads: functions may be called on any thread. The owner's functions are
// called without the lock, while the turn holds a reference to the owner.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "server/budget/turns.h"

namespace posenc::server {

class CallTurn final : private Turns::Waiter {
 public:
  // The call. It owns the turn.
  class Owner {
   public:
    // A reference that keeps the call alive.
    virtual std::shared_ptr<void> KeepAlive() = 0;
    // One of these, after Enter() has returned kWaiting and unless
    // StopWaiting() returns true first: the turn has come, or never will.
    virtual void OnTurn() = 0;
    virtual void OnTurnLost() = 0;

   protected:
    ~Owner() = default;
  };

  enum class State { kNone, kWaiting, kHeld };

  CallTurn(Turns* turns, Owner* owner) : turns_(turns), owner_(owner) {}

  Turns::Entry Enter(const Turns::Request& request);
  State state() const { return state_.load(); }
  // Whether this call's work should go before that of others.
  bool light() const { return Turns::Waiter::light(); }

  // Stops waiting, and says whether it did: if not, OnTurn() or OnTurnLost()
  // was or is being called, or the call did not wait.
  bool StopWaiting();

  // See Turns::Waiter.
  using Turns::Waiter::SetBusy;

  // Ends the turn, if there is one. See Turns::Leave().
  void Leave(std::int64_t moved, double computing);

 private:
  void TurnCame() override;
  void TurnLost() override;

  Turns* const turns_;
  Owner* const owner_;
  mutable std::mutex mutex_;
  std::atomic<State> state_{State::kNone};  // changed under the lock
};

}  // namespace posenc::server
