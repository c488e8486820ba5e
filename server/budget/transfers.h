// Watches the messages that are on their way between peers and the server, so
// that a peer who stalls holds no memory that others wait for.
//
// gRPC reads a message as a whole: how much of it has come cannot be seen, nor
// can the read be paused. So what is in memory is measured as a whole, as the
// growth of the heap since the start and the blocks of responses, every 10 ms
// while a message is older than 10 ms, and Admission is told (SetHeld). Then
//
//   somebody waits for memory, and messages have been coming for 50 ms, and
//   less is held than if each of them came at 16 MiB/s:
//     claims shrink to nothing (Owner::ShrinkClaim), the oldest first, until
//     what is held is enough for the others; what such a message really holds
//     is part of what is measured
//   more is held than 0.97 times the budget, or will be at the next measure:
//     messages are cut off, as many as hold the excess:
//       1. the newest of those that are coming and were not announced; the
//          oldest are nearest to their end
//       2. the oldest of those that seem to be larger than was announced
//     and for what is beyond 1.02 times the budget:
//       3. small answers that no claim covers, unread for a second
//     and what follows only for what is beyond 1.05 times the budget:
//       4. the newest of the others that are coming, but for those that were
//          announced as small
//       5. these, if they are overdue
//     A message must have been coming for 10 ms.
//   somebody waits for memory, and a message, coming or going, is older than
//   10 s and slower than 1 MiB/s:
//     it is cut off
//   the same, and either its peer's messages hold more than a fair part of
//   the budget (what others leave of an equal part is shared, too), or it is
//   small and such calls have used up most of what they have beside the budget:
//     it is cut off if it is older than 1 s and slower than 4 MiB/s; not a
//     stream's, which waits for its client to go on, nor if all who wait are
//     of its own peer
//
// A message is small as Admission says (IsSmall), and is so in any case with
// kUncountedBytes.
//
// Time by the clock.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "server/budget/admission.h"
#include "server/budget/ticker.h"

namespace posenc::server {

// Safe for many threads. Owners are called without locks.
class Transfers {
 public:
  enum class Direction { kIn, kOut };

  // The call that a message belongs to.
  class Owner {
   public:
    // A reference that keeps the call alive.
    virtual std::shared_ptr<void> KeepAlive() = 0;
    // Who must not hold what others wait for, as FairQueue has it.
    virtual std::uint64_t PeerId() const = 0;
    // Others wait for memory: the message that is coming holds less than the
    // call claims, as far as is known. Called again while that is so.
    //
    // This and the next two are about the message of this number. When they
    // are called, the call may be at its next one, or at none.
    virtual void ShrinkClaim(std::uint64_t message) = 0;
    // There is no memory for the message that is coming, which was not
    // announced, and seems to hold so many bytes. Called before CutOff().
    virtual void ExpectMore(std::uint64_t message, std::int64_t holds) = 0;
    // The message is to be given up with this error. Whether it was.
    virtual bool CutOff(Direction direction, std::uint64_t message,
                        const absl::Status& why) = 0;

   protected:
    ~Owner() = default;
  };

  // What is made of a message, and answers, are claimed by nobody up to so many
  // bytes: they are part of what each call takes.
  static constexpr std::int64_t kUncountedBytes = 64 << 10;
  // What gRPC and the server keep for a call beside its messages.
  static constexpr std::int64_t kCallBytes = 16 << 10;

  // A message under way, a member of its call. Between Add() and Remove() it
  // belongs to Transfers.
  class Message {
   public:
    // Of this message and no other since the start; 0: it is not under way. For
    // any thread.
    std::uint64_t number() const { return number_.load(); }

   private:
    friend class Transfers;
    Direction direction_ = Direction::kIn;
    Owner* owner_ = nullptr;  // null: it is not under way
    std::int64_t bytes_ = 0;  // 0: not known
    double since_ = 0;
    bool of_stream_ = false;
    bool cut_ = false;
    std::atomic<std::uint64_t> number_{0};
    std::list<Message*>::iterator place_;
  };

  // held: bytes in memory that messages hold, measured. May take milliseconds.
  // relieve: called after each measure with what is held, to return to the
  // kernel what is kept beside it.
  Transfers(Admission* admission, std::function<std::int64_t()> held,
            std::function<void(std::int64_t held)> relieve);

  // A message of `bytes` (0: not known) is on its way. `owner` lives until
  // Remove(). of_stream: a claim covers it, however small it is, and it waits
  // for its client to go on.
  void Add(Direction direction, std::int64_t bytes, bool of_stream,
           Owner* owner, Message* message);
  // It has arrived, or will not. May be called for one that is not under way.
  void Remove(Message* message);

  // Messages of so many bytes have come and are worked on; a negative number
  // when their answers go, or their calls end. The rest of what is measured
  // belongs to messages that are coming.
  void AddWorkedOn(std::int64_t bytes) { worked_on_ += bytes; }

  // It has not been slow until now: its peer had reason to wait.
  void Touch(Message* message);

  // Messages that were cut off, since the start.
  std::int64_t cut() const { return cut_.load(); }

 private:
  struct Victims;
  struct Coming;
  struct Soon;
  enum class Why { kSlow, kUnfair, kNotAnnounced, kAnnounced, kUnread };

  static absl::Status ErrorOf(Why why);
  bool Tick();
  // These expect the lock.
  static void Cut(Message* message, Why why, Victims* victims,
                  double holds = 0);
  bool IsSmall(std::int64_t bytes) const;
  Coming EstimateComing(double now, std::int64_t held) const;
  void ChooseShrunk(double now, std::int64_t held, Victims* victims);
  void ChooseSlow(double now, std::int64_t held, Victims* victims);
  void ChooseExcess(double now, std::int64_t held, const Soon& soon,
                    Victims* victims);
  Soon Expect(double now, std::int64_t held);

  Admission* const admission_;
  const std::function<std::int64_t()> held_;
  const std::function<void(std::int64_t held)> relieve_;
  std::mutex mutex_;
  std::list<Message*> coming_, going_;  // the oldest first
  // Nodes for the next ones. Those of a burst are not kept: each would keep a
  // page of the heap.
  static constexpr std::size_t kMostSpare = 256;
  std::list<Message*> spare_;
  std::atomic<std::int64_t> cut_{0};
  std::atomic<std::int64_t> worked_on_{0};
  std::uint64_t added_ = 0;
  // Used by the ticker's thread alone.
  double next_ = 0;  // when to measure again
  bool told_ = false;
  std::int64_t last_ = 0;  // what was measured, and when
  double last_at_ = 0;
  double longest_interval_ = 0;  // between two measures
  double last_took_ = 0;         // measuring
  Ticker ticker_;                // last: its thread uses the others
};

}  // namespace posenc::server
