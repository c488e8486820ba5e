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
// What is claimed may be less than what is held: a message that announced
// nothing turns out large, or a claim shrank because its message does not come
// (Transfers). Then it is measured what is held (SetHeld), and the larger of
// the two counts.
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
#include <optional>
#include <utility>

namespace posenc::server {

class Admission {
 public:
  // Somebody who waits. Stays valid until Admitted() or Refused() was called,
  // or Leave() returned true.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    // The bytes are claimed. Called once, without locks, on whichever thread
    // released them: must return soon.
    virtual void Admitted() = 0;
    // The bytes will never come. Called instead of Admitted(), and only if the
    // waiter came through EnterMore().
    virtual void Refused() = 0;
    // Whose call it is, as FairQueue has it.
    virtual std::uint64_t PeerId() const = 0;

   private:
    friend class Admission;
    std::int64_t bytes_ = 0;
    std::chrono::steady_clock::time_point since_;  // when it began to wait
    std::int64_t held_ = 0;
    std::list<Waiter*>* queue_ = nullptr;  // null: it does not wait
    std::list<Waiter*>::iterator position_;
  };

  // kNever: the bytes are more than the budget, or than it leaves beside what
  // the call holds already.
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
  // `waiter` will be called, unless Leave() comes first. kFull: too many wait.
  Entry Enter(std::int64_t bytes, Waiter* waiter);

  // Claims `bytes` more for a call that holds a claim of `held`. kFull: nobody
  // else is left to release anything.
  // OnClaim's reaction is left to the caller, who may use the memory that the
  // reaction would throw away.
  Entry EnterMore(std::int64_t bytes, std::int64_t held, Waiter* waiter);

  // Stops waiting. False if the waiter has been called, or is being called. If
  // it returns true, the caller calls AdmitWaiting() as soon as it holds no
  // lock: those behind the one that left may fit.
  bool Leave(Waiter* waiter);

  // Claims more for a call that is inside, if it fits at once, or goes beyond
  // the budget by no more than `beyond`. `waiter` is the call's, if it may be
  // waiting in EnterMore() meanwhile: it then holds more.
  bool TryClaim(std::int64_t bytes, Waiter* waiter = nullptr,
                std::int64_t beyond = 0);

  // Claims bytes that are in memory already, whether they fit or not. `waiter`
  // as above.
  void ClaimHeld(std::int64_t bytes, Waiter* waiter = nullptr);

  // So many bytes are held, as measured; 0: nothing was measured.
  void SetHeld(std::int64_t bytes);

  // Gives bytes back, and lets those go on who fit now.
  void Release(std::int64_t bytes);

  // Lets those go on who fit now.
  void AdmitWaiting() { Release(0); }

  std::int64_t budget() const { return budget_.load(); }
  std::int64_t claimed() const;
  std::int64_t held() const;  // as SetHeld()
  std::size_t waiting() const;
  // The peer whose calls are all that wait, if they are one peer's.
  std::optional<std::uint64_t> OnlyWaitingPeer() const;
  // The most that was claimed at a time since the last call of this function.
  std::int64_t TakePeak();

 private:
  // These expect the lock.
  void Claim(std::int64_t bytes);
  void Wait(std::list<Waiter*>* queue, Waiter* waiter);
  void StopWaiting(Waiter* waiter);
  // Of those that hold a claim and wait; null if there are none.
  Waiter* NewestHolder() const;
  void Grow(std::int64_t bytes, Waiter* waiter);
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
  std::int64_t held_ = 0;
  std::int64_t peak_ = 0;  // for TakePeak()
  std::list<Waiter*> outside_;
  std::list<Waiter*> inside_;
  std::int64_t waiting_held_ = 0;
};

}  // namespace posenc::server
