// Keeps the bytes of all messages in flight below a budget, for any number of
// clients. A call claims bytes before its payload is read. If the bytes do not
// fit, the call waits or is refused.
//
// Calls wait for the budget in two queues:
//   inside_   Calls that hold a claim and need more, for their response, in the
//             order of arrival.
//   outside_  Calls that hold no claim yet, or a small claim (IsSmall). The
//             parties take turns, as in places.h.
// Calls in inside_ come first, because only they can release many bytes. If all
// calls that hold a claim wait for more, none of them could ever continue. Then
// the last of them is refused, and releases its claim for the other calls.
//
// Invariants, under the lock:
//   waiting_held_ is the part of claimed_ that waiting calls hold.
//   After each AdmitWaiting(), the first call of inside_ does not fit. If
//   inside_ is empty, the first call of outside_ does not fit.
// Thread-safe. Callbacks are called without the lock.

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
  // A waiting call's entry in a queue. Must stay valid until Waiter::Resume()
  // has been called, or Leave() has returned true.
  class Ticket {
   public:
    // `party` identifies the call's party, as in Places::Request.
    explicit Ticket(std::uint64_t party = 0) : party_(party) {}

   private:
    friend class Admission;
    const std::uint64_t party_;
    std::int64_t round_ = 0;  // its round of turns in outside_
    Waiter* waiter_ = nullptr;
    std::int64_t bytes_ = 0;
    std::chrono::steady_clock::time_point since_;  // when it began to wait
    std::int64_t held_ = 0;
    std::list<Ticket*>* queue_ = nullptr;  // null: it does not wait
    std::list<Ticket*>::iterator position_;
  };

  // The result of a request for bytes. kNever means that the call's own claim
  // and the requested bytes together exceed the budget, so waiting is useless.
  enum class Entry { kAdmitted, kWaiting, kFull, kNever };

  // Enter() lets no more calls wait if `max_waiting` calls wait in outside_.
  Admission(std::int64_t budget_bytes, std::size_t max_waiting)
      : budget_(budget_bytes), max_waiting_(max_waiting) {}

  // Changes both limits. Existing claims do not change.
  void SetLimits(std::int64_t budget_bytes, std::size_t max_waiting);

  // Sets a function that is called after a claim, except in EnterMore(), with
  // the unclaimed bytes of the budget. Must be called at most once, before any
  // claim.
  void OnClaim(std::function<void(std::int64_t left)> react) {
    react_ = std::move(react);
  }

  // A small call claims at most 1/kSmallPart of the budget. All small calls
  // together may exceed the budget by 1/kSmallsPart of the budget.
  static constexpr std::int64_t kSmallPart = 256;
  static constexpr std::int64_t kSmallsPart = 16;

  bool IsSmall(std::int64_t bytes) const {
    return bytes <= budget() / kSmallPart;
  }

  // Claims `bytes` for a call that holds no claim. `bytes` must not exceed the
  // budget. After kWaiting, `waiter` is resumed with OK when the bytes are
  // claimed, unless Leave() is called first. kFull means that too many calls
  // wait.
  Entry Enter(std::int64_t bytes, Ticket* ticket, Waiter* waiter);

  // Claims `bytes` more for a call that holds a claim of `held`. Returns kFull
  // if no other call could release bytes. For the same reason, a waiting call
  // may later be resumed with an error. If `waiter` is null, kWaiting means
  // that the call would have to wait. Does not call the function of OnClaim(),
  // because this function would free kept memory that the caller may reuse.
  Entry EnterMore(std::int64_t bytes, std::int64_t held, Ticket* ticket,
                  Waiter* waiter);

  // Stops waiting. Returns false if the waiter was resumed, or is being
  // resumed. After true, the caller must call AdmitWaiting() as soon as it
  // holds no lock, because calls behind this call in the queue may fit now.
  bool Leave(Ticket* ticket);

  // Claims more bytes for a call that holds a claim. Returns false if the
  // claims would exceed the budget by more than `beyond`. Pass the call's
  // `ticket` if the call may be waiting in EnterMore() at the same time. The
  // new bytes are then added to the bytes that the waiting call already holds.
  bool TryClaim(std::int64_t bytes, Ticket* ticket = nullptr,
                std::int64_t beyond = 0);

  // Claims bytes that are already in memory, even if they do not fit.
  void ClaimHeld(std::int64_t bytes) {
    TryClaim(bytes, nullptr, INT64_MAX / 2);
  }

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
  // The caller of these functions must hold the lock.
  void Claim(std::int64_t bytes);
  void Wait(std::list<Ticket*>* queue, Ticket* ticket, Waiter* waiter);
  // Sets the round of a ticket that enters outside_. All other tickets of its
  // party are in earlier rounds. Returns the ticket's position in the queue.
  std::list<Ticket*>::iterator FindTurn(Ticket* ticket);
  void StopWaiting(Ticket* ticket);
  // Returns the last waiting call that holds a claim; null if there is none.
  Ticket* LastHolder() const;
  void Grow(std::int64_t bytes, Ticket* ticket);
  bool Fits(std::int64_t bytes) const;
  bool FitsFirst(std::int64_t bytes) const;
  bool PassesAsSmall(std::int64_t bytes) const;
  bool ResponsePassesAsSmall(std::int64_t bytes) const;

  // Returns the number of unclaimed bytes of the budget. The caller must hold
  // the lock.
  std::int64_t Left() const {
    return std::max<std::int64_t>(budget_ - claimed_, 0);
  }
  void React(std::int64_t left) const;  // call it without the lock

  std::function<void(std::int64_t left)> react_;
  mutable std::mutex mutex_;
  std::atomic<std::int64_t> budget_;  // changed under the lock
  std::size_t max_waiting_;
  std::int64_t claimed_ = 0;
  std::int64_t peak_ = 0;       // for TakePeak()
  std::list<Ticket*> outside_;  // in the order of rounds
  std::list<Ticket*> inside_;
  std::int64_t waiting_held_ = 0;
};

}  // namespace posenc::server
