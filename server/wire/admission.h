// A budget of bytes that calls claim before their payload is read, so that the
// memory of messages is bounded however many clients there are.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

namespace posenc::server {

class Admission {
 public:
  // A call that waits for room.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    // There is room, and it is claimed. Called once, without locks, on a thread
    // that gives room back: must return soon.
    virtual void Admitted() = 0;
    // In its stead, to one that waits for more: there will be no room.
    virtual void Refused() = 0;

   private:
    friend class Admission;
    std::int64_t bytes_ = 0;
    std::int64_t held_ = 0;
    std::list<Waiter*>* queue_ = nullptr;  // where it waits
    std::list<Waiter*>::iterator place_;
  };

  enum class Entry { kAdmitted, kWaiting, kFull };

  Admission(std::int64_t budget_bytes, std::size_t max_waiting)
      : budget_(budget_bytes), max_waiting_(max_waiting) {}

  // From now on calls react(bytes that nobody claims) after every claim, on the
  // claiming thread and without locks. Once, before any claim.
  void OnClaim(std::function<void(std::int64_t left)> react) {
    react_ = std::move(react);
  }

  // What a call of this size claims: no more than the whole budget, so that one
  // which is larger runs alone.
  std::int64_t Bounded(std::int64_t bytes) const {
    return bytes < budget_ ? bytes : budget_;
  }

  // Claims room, `bytes` as bounded, in the order of arrival. kWaiting:
  // Admitted() will be called, unless Leave() comes first.
  Entry Enter(std::int64_t bytes, Waiter* waiter);

  // The same for a call that is inside and holds a claim of `held`: before all
  // that wait to enter. Two calls that wait for each other's room would wait
  // for ever: kFull, or Refused() to the last that came, where nobody else is
  // left to give room back.
  // OnClaim's reaction is left to the caller, who may use what it throws away.
  Entry EnterMore(std::int64_t bytes, std::int64_t held, Waiter* waiter);

  // Stops waiting. False where the claim has been granted, or refused:
  // Admitted() or Refused() was or is being called.
  bool Leave(Waiter* waiter);

  // Claims more for a call that is inside, without waiting.
  bool TryClaim(std::int64_t bytes);

  // Gives room back.
  void Release(std::int64_t bytes);

  std::int64_t budget() const { return budget_; }
  std::int64_t claimed() const;
  std::size_t waiting() const;
  // All that was claimed since the last call of this, what is held included.
  std::int64_t TakeClaimedBytes();

 private:
  // Under the lock.
  void Claim(std::int64_t bytes);
  void Wait(std::list<Waiter*>* queue, Waiter* waiter);
  void StopWaiting(Waiter* waiter);
  bool Fits(std::int64_t bytes) const { return claimed_ + bytes <= budget_; }

  void React() const;  // without the lock

  const std::int64_t budget_;
  const std::size_t max_waiting_;
  std::function<void(std::int64_t left)> react_;
  mutable std::mutex mutex_;
  std::int64_t claimed_ = 0;
  std::int64_t claimed_since_ = 0;
  std::list<Waiter*> queue_;       // to enter
  std::list<Waiter*> more_;        // inside, in the order of arrival
  std::int64_t waiting_held_ = 0;  // claims of those
};

}  // namespace posenc::server
