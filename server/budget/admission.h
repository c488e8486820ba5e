// Keeps the bytes of all messages in flight below a budget, however many
// clients there are: a call claims bytes before its payload is read, and
// waits, or is refused, if they do not fit.
//
// Two queues wait for the budget, each in the order of arrival:
//   inside_   calls that hold a claim and need more, for their response
//   outside_  calls that hold nothing yet, or next to nothing (IsSmall)
// Small calls pass those outside, and small responses those inside who have not
// waited for long, up to a sixteenth beside the budget. Calls inside go first,
// because only they can give bytes back. Calls that all hold a claim and all
// wait for more would wait for ever: if nobody else is left to release
// anything, the newest of them is refused, which releases its claim and so lets
// the others go on.
//
// A call may hold more bytes than it claimed: a message that announced nothing
// may be large. It is claimed when it has come (ClaimHeld), and HeldMemory
// measures what comes at the same time.
//
// Invariants, under the lock:
//   waiting_held_ is what waiting calls hold, and part of claimed_
//   after each AdmitWaiting(), the head of the first queue that is not empty
//   does not fit
// Safe for many threads. No callback is made with the lock held.

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

#include "server/budget/waiter.h"

namespace posenc::server {

class Admission {
 public:
  // Where a call waits. Stays valid until Waiter::Resume() was called, or
  // Leave() returned true.
  class Ticket {
   private:
    friend class Admission;
    Waiter* waiter_ = nullptr;
    std::int64_t bytes_ = 0;
    std::chrono::steady_clock::time_point since_;  // when it began to wait
    std::int64_t held_ = 0;
    std::list<Ticket*>* queue_ = nullptr;  // null: it does not wait
    std::list<Ticket*>::iterator position_;
  };

  // kNever: even a server without other calls has no room beside what the call
  // holds.
  enum class Entry { kAdmitted, kWaiting, kFull, kNever };

  // At most `max_waiting` calls wait outside.
  Admission(std::int64_t budget_bytes, std::size_t max_waiting)
      : budget_(budget_bytes), max_waiting_(max_waiting) {}

  // Other limits from now on. Claims stay as they are.
  void SetLimits(std::int64_t budget_bytes, std::size_t max_waiting);

  // Sets what is called after every claim, with the bytes that nobody claims,
  // on the claiming thread and without locks. To be called once, before any
  // claim.
  void OnClaim(std::function<void(std::int64_t left)> react) {
    react_ = std::move(react);
  }

  // The part of the budget that a small call claims at most, and the part that
  // such calls may claim together beside it.
  static constexpr std::int64_t kSmallPart = 256;
  static constexpr std::int64_t kSmallsPart = 16;

  // Whether a claim of so many bytes passes those that wait.
  bool IsSmall(std::int64_t bytes) const {
    return bytes <= budget() / kSmallPart;
  }

  // What a call of this size claims: no more than the whole budget, so that a
  // call that is larger than the budget runs alone.
  std::int64_t Bounded(std::int64_t bytes) const;

  // Claims `bytes`, as bounded, for a call that holds nothing. kWaiting:
  // `waiter` is resumed with OK when they are claimed, unless Leave() comes
  // first. kFull: too many wait.
  Entry Enter(std::int64_t bytes, Ticket* ticket, Waiter* waiter);

  // Claims `bytes` more for a call that holds a claim of `held`. kFull: nobody
  // else is left to release anything. A waiter may be resumed with that as an
  // error. Without a waiter (null), kWaiting says that the call would wait.
  // OnClaim's function is not called: the caller may use the memory that it
  // would throw away.
  Entry EnterMore(std::int64_t bytes, std::int64_t held, Ticket* ticket,
                  Waiter* waiter);

  // Stops waiting. False if the waiter was resumed, or is being resumed. If
  // it returns true, the caller calls AdmitWaiting() as soon as it holds no
  // lock: those behind the one that left may fit.
  bool Leave(Ticket* ticket);

  // Claims more for a call that is inside, if it fits at once, or goes beyond
  // the budget by no more than `beyond`. `ticket` is the call's, if it may be
  // waiting in EnterMore() meanwhile: it then holds more.
  bool TryClaim(std::int64_t bytes, Ticket* ticket = nullptr,
                std::int64_t beyond = 0);

  // Claims bytes that are in memory already, whether they fit or not. `ticket`
  // as above.
  void ClaimHeld(std::int64_t bytes, Ticket* ticket = nullptr);

  // Gives bytes back, and lets those go on who fit now.
  void Release(std::int64_t bytes);

  // Lets those go on who fit now.
  void AdmitWaiting() { Release(0); }

  std::int64_t budget() const { return budget_.load(); }
  std::int64_t claimed() const;
  std::size_t waiting() const;
  // The most that was claimed at a time since the last call of this function.
  std::int64_t TakePeak();

 private:
  // These expect the lock.
  void Claim(std::int64_t bytes);
  void Wait(std::list<Ticket*>* queue, Ticket* ticket, Waiter* waiter);
  void StopWaiting(Ticket* ticket);
  // Of those that hold a claim and wait; null if there are none.
  Ticket* NewestHolder() const;
  void Grow(std::int64_t bytes, Ticket* ticket);
  bool Fits(std::int64_t bytes) const;
  bool PassesAsSmall(std::int64_t bytes) const;
  bool ResponsePassesAsSmall(std::int64_t bytes) const;

  // What is to be told of a claim. Expects the lock.
  std::int64_t Left() const {
    return std::max<std::int64_t>(budget_ - claimed_, 0);
  }
  void React(std::int64_t left) const;  // without the lock

  std::function<void(std::int64_t left)> react_;
  mutable std::mutex mutex_;
  std::atomic<std::int64_t> budget_;  // changed under the lock
  std::size_t max_waiting_;
  std::int64_t claimed_ = 0;
  std::int64_t peak_ = 0;  // for TakePeak()
  std::list<Ticket*> outside_;
  std::list<Ticket*> inside_;
  std::int64_t waiting_held_ = 0;
};

}  // namespace posenc::server
