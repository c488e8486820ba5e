// Keeps the bytes of all messages in flight below a budget, for any number of
// clients: a call claims bytes before its payload is read, and waits, or is
// refused, if they do not fit.
//
// Two queues wait for the budget, each in the order of arrival:
//   inside_   calls that hold a claim and need more, for their response
//   outside_  calls that hold nothing yet, or next to nothing (IsSmall)
// Calls inside come first, because only they can release bytes. If all calls
// that hold a claim wait for more, none of them could ever continue. Then the
// newest of them is refused, and releases its claim for the others.
//
// Invariants, under the lock:
//   waiting_held_ is the part of claimed_ that waiting calls hold
//   after each AdmitWaiting(), the first call of inside_ does not fit; if
//   inside_ is empty, the first call of outside_ does not fit
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

#include "server/scheduling/waiter.h"

namespace posenc::server {

class Admission {
 public:
  // A waiting call's entry in a queue. Stays valid until Waiter::Resume() was
  // called, or Leave() returned true.
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

  // kNever: the bytes do not fit beside the call's own claim, even if no other
  // call holds any.
  enum class Entry { kAdmitted, kWaiting, kFull, kNever };

  // At most `max_waiting` calls wait outside.
  Admission(std::int64_t budget_bytes, std::size_t max_waiting)
      : budget_(budget_bytes), max_waiting_(max_waiting) {}

  // Sets other limits from now on. Claims stay as they are.
  void SetLimits(std::int64_t budget_bytes, std::size_t max_waiting);

  // Sets a function that is called after every claim with the unclaimed bytes
  // of the budget. Call it once, before any claim.
  void OnClaim(std::function<void(std::int64_t left)> react) {
    react_ = std::move(react);
  }

  // A small call claims at most 1/kSmallPart of the budget. All small calls
  // together may exceed the budget by 1/kSmallsPart.
  static constexpr std::int64_t kSmallPart = 256;
  static constexpr std::int64_t kSmallsPart = 16;

  bool IsSmall(std::int64_t bytes) const {
    return bytes <= budget() / kSmallPart;
  }

  // Returns the size of the claim of a call with `bytes`: at most the whole
  // budget, so that a larger call runs alone.
  std::int64_t Bounded(std::int64_t bytes) const;

  // Claims `bytes`, as bounded, for a call that holds nothing. kWaiting:
  // `waiter` is resumed with OK when they are claimed, unless Leave() comes
  // first. kFull: too many calls wait.
  Entry Enter(std::int64_t bytes, Ticket* ticket, Waiter* waiter);

  // Claims `bytes` more for a call that holds a claim of `held`. kFull: no
  // other call is left that could release bytes. A waiter may later be resumed
  // with this as an error. Without a waiter (null), kWaiting says that the call
  // would wait. Does not call OnClaim's function: it would free kept memory
  // that the caller may use.
  Entry EnterMore(std::int64_t bytes, std::int64_t held, Ticket* ticket,
                  Waiter* waiter);

  // Stops waiting. Returns false if the waiter was resumed, or is being
  // resumed. After true, the caller must call AdmitWaiting() as soon as it
  // holds no lock, because the calls behind may fit now.
  bool Leave(Ticket* ticket);

  // Claims more for a call that is inside, if it fits at once, or exceeds the
  // budget by at most `beyond`. Pass the call's `ticket` if the call may be
  // waiting in EnterMore() at the same time: its entry then counts the new
  // claim.
  bool TryClaim(std::int64_t bytes, Ticket* ticket = nullptr,
                std::int64_t beyond = 0);

  // Claims bytes that are in memory already, whether or not they fit. `ticket`
  // as above.
  void ClaimHeld(std::int64_t bytes, Ticket* ticket = nullptr);

  // Releases bytes, and admits the waiting calls that fit now.
  void Release(std::int64_t bytes);

  // Admits the waiting calls that fit now.
  void AdmitWaiting() { Release(0); }

  std::int64_t budget() const { return budget_.load(); }
  std::int64_t claimed() const;
  std::size_t waiting() const;
  // Returns the largest sum of claims since the last call of this function.
  std::int64_t TakePeak();

 private:
  // These expect the lock.
  void Claim(std::int64_t bytes);
  void Wait(std::list<Ticket*>* queue, Ticket* ticket, Waiter* waiter);
  void StopWaiting(Ticket* ticket);
  // Returns the newest waiting call that holds a claim; null if there is none.
  Ticket* NewestHolder() const;
  void Grow(std::int64_t bytes, Ticket* ticket);
  bool Fits(std::int64_t bytes) const;
  bool FitsFirst(std::int64_t bytes) const;
  bool PassesAsSmall(std::int64_t bytes) const;
  bool ResponsePassesAsSmall(std::int64_t bytes) const;

  // Returns the unclaimed bytes of the budget. Expects the lock.
  std::int64_t Left() const {
    return std::max<std::int64_t>(budget_ - claimed_, 0);
  }
  void React(std::int64_t left) const;  // call it without the lock

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
