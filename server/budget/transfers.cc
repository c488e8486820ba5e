#include "server/budget/transfers.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/budget/errors.h"

namespace posenc::server {
namespace {

// Seconds; see the head of transfers.h.
constexpr double kOld = 0.01;
constexpr double kShrinkAfter = 0.05;
constexpr double kSlowAfter = 10;
constexpr double kLongestAge = 1;
constexpr double kSlowBytesPerSecond = 1 << 20;
constexpr double kUnfairAfter = 1;
constexpr double kUnfairBytesPerSecond = 4 << 20;

// What messages that move have brought at least. 256 connections with messages
// of 60 MiB, beside other work on the machine, moved at 60 MB/s each when four
// came at a time; when all lost their claims after 50 ms, twenty came at a
// time, most were cut off half-way, and no call was answered.
constexpr double kMovingBytesPerSecond = 16 << 20;

// Times the budget. What is in memory for a message is a little more than its
// bytes. Between two measures, messages that were not announced, or announced
// too small, bring all that the machine receives: 16 MiB in 10 ms. With 256
// connections that sent the largest message, the excess was 10 % of the budget
// when they were cut at 1.05, and 1 % when they were cut at 1.
constexpr double kMostHeldUnsaid = 0.97, kMostHeldUnread = 1.02,
                 kMostHeld = 1.05;

// To cut off a message that was announced as small gains nothing, unless its
// client lied. It is overdue if it takes longer than this and its bytes at
// kMovingBytesPerSecond; its client seems to have lied if it holds more than so
// many times what was announced. Calls are put off on a busy machine, and what
// one message holds is only estimated.
constexpr double kOverdue = 0.05;
constexpr double kTimesAnnounced = 2;

// Messages that come are taken to have this part of what is held at least: of
// answers it is not known what is held (ChooseExcess).
constexpr double kLeastComing = 0.1;

// Messages do not come at the same speed, and the newest may hold next to
// nothing. If one was not announced, or not truly, this part of its estimate
// counts as free when it is cut off: 256 connections with the largest message,
// none of them announced, went 17 to 25 % beyond the budget when it was all of
// it.
constexpr double kLeastOfPart = 0.5;

// Small calls have used up most of what they have beside the budget once they
// have used this part of it.
constexpr double kSmallsFull = 0.5;

// Memory is short for peers' parts if they hold this part of the budget: what
// calls claim and do not hold is the rest.
constexpr double kShort = 0.9;

// A small answer that has not gone after so many seconds has a peer who does
// not read it.
constexpr double kUnreadAfter = 1;

// With 10,000 calls in memory, measuring takes long enough to be felt: it walks
// the allocator's free lists under the allocator's lock. It may take a fiftieth
// of the time, in which only its own work counts, and of two measures the
// shorter one: one that waited 10 ms for the processor would put the next off
// by 500 ms, in which messages went half a budget beyond it, and one that took
// 3 ms once put it off by 160 ms. If nobody waits and little is held, it is
// done less often.
constexpr double kPause = 50;
constexpr double kQuietPause = 0.05;

// On a busy processor measures come late, and what comes meanwhile goes beyond
// the budget. The longest time between two is remembered, each time this much
// less of it, and no more of it than this many seconds.
constexpr double kForget = 0.9;
constexpr double kLongestInterval = 0.05;

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double ThreadCpu() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// What a peer may hold if they share `bytes` fairly: who holds less than an
// equal part leaves the rest of it to the others. Who came alone may hold all.
double FairPart(const absl::flat_hash_map<std::uint64_t, double>& of_peers,
                double bytes) {
  constexpr double kAll = std::numeric_limits<double>::infinity();
  if (of_peers.size() < 2) return kAll;
  std::vector<double> held;
  held.reserve(of_peers.size());
  for (const auto& [peer, holds] : of_peers) held.push_back(holds);
  std::sort(held.begin(), held.end());
  auto left = static_cast<double>(held.size());
  for (const double holds : held) {
    if (holds * left > bytes) return bytes / left;
    bytes -= holds;
    --left;
  }
  return kAll;
}

}  // namespace

// With references, so that no call ends before it was told; and with the number
// of the message, which may have arrived by then.
struct Transfers::Victims {
  struct Victim {
    Victim(const Message& message, Why why, double holds = 0)
        : keep(message.owner_->KeepAlive()),
          owner(message.owner_),
          number(message.number()),
          direction(message.direction_),
          why(why),
          holds(static_cast<std::int64_t>(holds)) {}

    std::shared_ptr<void> keep;
    Owner* owner;
    std::uint64_t number;
    Direction direction;
    Why why;             // it is cut off
    std::int64_t holds;  // as is estimated, of one that was not announced
  };
  std::vector<Victim> shrink, cut;
};

// What messages that come hold altogether, and one of them: the more the longer
// it has been coming.
struct Transfers::Coming {
  double AgeOf(const Message& message) const {
    return std::clamp(now - message.since_, 0.0, kLongestAge);
  }
  double PartOf(double all, const Message& message) const {
    return ages > 0 ? all * AgeOf(message) / ages : 0;
  }

  double now;
  double ages = 0;
  double bytes = 0;
};

// What will be held when memory is measured again.
struct Transfers::Soon {
  double usual;      // after as much time as lay between the last two measures
  double at_latest;  // after the longest time that lay between two lately
};

Transfers::Transfers(Admission* admission, std::function<std::int64_t()> held,
                     std::function<void(std::int64_t held)> relieve)
    : admission_(admission),
      held_(std::move(held)),
      relieve_(std::move(relieve)),
      ticker_(std::chrono::milliseconds(10), [this] { return Tick(); }) {}

void Transfers::Add(Direction direction, std::int64_t bytes, bool of_stream,
                    Owner* owner, Message* message) {
  {
    // owner_ says that place_ is good, so that Touch() on another thread must
    // not see the one without the other.
    const std::lock_guard<std::mutex> lock(mutex_);
    message->direction_ = direction;
    message->owner_ = owner;
    message->bytes_ = bytes;
    message->of_stream_ = of_stream;
    message->since_ = Now();
    message->cut_ = false;
    std::list<Message*>& list = direction == Direction::kIn ? coming_ : going_;
    if (spare_.empty()) {
      list.push_back(message);
    } else {
      spare_.front() = message;
      list.splice(list.end(), spare_, spare_.begin());
    }
    message->place_ = std::prev(list.end());
    message->number_ = ++added_;
  }
  ticker_.Wake();
}

void Transfers::Remove(Message* message) {
  if (message->number() == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (message->owner_ == nullptr) return;
  message->owner_ = nullptr;
  message->number_ = 0;
  std::list<Message*>& list =
      message->direction_ == Direction::kIn ? coming_ : going_;
  spare_.splice(spare_.begin(), list, message->place_);
  if (spare_.size() > kMostSpare) spare_.pop_back();
}

void Transfers::Touch(Message* message) {
  if (message->number() == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (message->owner_ == nullptr) return;
  message->since_ = Now();
  std::list<Message*>& list =
      message->direction_ == Direction::kIn ? coming_ : going_;
  list.splice(list.end(), list, message->place_);
}

void Transfers::Cut(Message* message, Why why, Victims* victims, double holds) {
  message->cut_ = true;
  victims->cut.emplace_back(*message, why, holds);
}

absl::Status Transfers::ErrorOf(Why why) {
  switch (why) {
    case Why::kSlow:
      return OverBudget(
          "the message moved slower than 1 MiB/s while others waited for its "
          "memory");
    case Why::kUnfair:
      return OverBudget(
          "the message moved slower than 4 MiB/s while its peer held more than "
          "its part of the memory that others waited for");
    case Why::kNotAnnounced:
      return OverBudget(
          "no memory for this message beside the others; announce its size to "
          "wait for room");
    case Why::kAnnounced:
      break;
    case Why::kUnread:
      return OverBudget(
          "the answer was not read for a second while there was no memory");
  }
  return OverBudget(
      "no memory for this message, which comes late or is larger than was "
      "announced, beside the others");
}

// What is held has in it what is being computed, which counts here as if the
// messages that come had brought it. That puts claims off that could shrink,
// but not for long: each message that stalls adds 16 MiB/s to what should be
// held, and what is computed is done soon and goes out, where it is known. The
// error in the other direction would be worse: messages that move would lose
// their claims (kMovingBytesPerSecond).
void Transfers::ChooseShrunk(double now, std::int64_t held, Victims* victims) {
  // What would be held if all of them moved, less what is.
  double missing = -static_cast<double>(held);
  for (const Message* const message : going_) {
    missing += static_cast<double>(message->bytes_);
  }
  const auto brought = [now](const Message& message) {
    return (now - message.since_) * kMovingBytesPerSecond;
  };
  const auto recent = std::find_if(
      coming_.begin(), coming_.end(), [now](const Message* message) {
        return message->since_ > now - kShrinkAfter;
      });
  for (auto it = coming_.begin(); it != recent; ++it) missing += brought(**it);
  for (auto it = coming_.begin(); missing > 0 && it != recent; ++it) {
    victims->shrink.emplace_back(**it, Why::kSlow);
    missing -= brought(**it);
  }
}

// What comes is at most the rest of what is held. (Tables that are kept are not
// in what is held, but are among the answers.)
Transfers::Coming Transfers::EstimateComing(double now,
                                            std::int64_t held) const {
  Coming coming = {now};
  for (const Message* const message : coming_) {
    coming.ages += coming.AgeOf(*message);
  }
  auto rest = static_cast<double>(held - worked_on_.load());
  for (const Message* const message : going_) {
    rest -= static_cast<double>(message->bytes_);
  }
  coming.bytes = std::max(rest, 0.0);
  return coming;
}

// It estimates what a coming message holds, since the announced bytes may never
// come.
void Transfers::ChooseSlow(double now, std::int64_t held, Victims* victims) {
  const auto is_old = [now](const std::list<Message*>& list) {
    return !list.empty() && list.front()->since_ < now - kUnfairAfter;
  };
  if (!is_old(coming_) && !is_old(going_)) return;
  const Coming coming = EstimateComing(now, held);
  const auto bytes_of = [&](const Message& message) {
    const auto said = static_cast<double>(message.bytes_);
    if (message.direction_ == Direction::kOut) return said;
    const double part = coming.PartOf(coming.bytes, message);
    return message.bytes_ > 0 ? std::min(part, said) : part;
  };
  absl::flat_hash_map<std::uint64_t, double> of_peers;
  for (const std::list<Message*>* const list : {&coming_, &going_}) {
    for (const Message* const message : *list) {
      of_peers[message->owner_->PeerId()] += bytes_of(*message);
    }
  }
  const auto budget = static_cast<double>(admission_->budget());
  // Who holds up nobody but itself is not unfair.
  const std::optional<std::uint64_t> waiting = admission_->OnlyWaitingPeer();
  // Whoever waits has a part too, however little it holds.
  of_peers[waiting.value_or(0)] = std::numeric_limits<double>::infinity();
  const double fair = FairPart(of_peers, kShort * budget);
  const bool smalls_full = static_cast<double>(admission_->claimed()) >
                           budget * (1 + kSmallsFull / Admission::kSmallsPart);
  for (const std::list<Message*>* const list : {&coming_, &going_}) {
    for (Message* const message : *list) {
      const double took = now - message->since_;
      if (took < kUnfairAfter) break;
      if (message->cut_) continue;
      const double bytes = message->bytes_ > 0
                               ? static_cast<double>(message->bytes_)
                               : static_cast<double>(held) /
                                     static_cast<double>(coming_.size() + 1);
      // A stream waits for its client: for what that has not made yet, and
      // while it works on what it has.
      const std::uint64_t peer = message->owner_->PeerId();
      const bool strict =
          !message->of_stream_ && waiting != peer &&
          (of_peers[peer] > fair ||
           (smalls_full && message->bytes_ > 0 && IsSmall(message->bytes_)));
      if (took > kSlowAfter + bytes / kSlowBytesPerSecond) {
        Cut(message, Why::kSlow, victims);
      } else if (strict &&
                 took > kUnfairAfter + bytes / kUnfairBytesPerSecond) {
        Cut(message, Why::kUnfair, victims);
      }
    }
  }
}

bool Transfers::IsSmall(std::int64_t bytes) const {
  return bytes <= kUncountedBytes || admission_->IsSmall(bytes);
}

// Messages come at about the same speed, so that one holds the more the longer
// it has been coming. Who announced is spared if possible, but not who seems to
// have announced too little, nor who leaves small answers unread: no claim
// covers that, and nothing else would end it.
void Transfers::ChooseExcess(double now, std::int64_t held, const Soon& soon,
                             Victims* victims) {
  const auto budget = static_cast<double>(admission_->budget());
  double over = soon.at_latest - kMostHeldUnsaid * budget;
  if (over <= 0) return;
  enum class Kind { kSilent, kLiar, kLarge, kLate, kSpared };
  const Coming coming = EstimateComing(now, held);
  // What is free once the message is cut off.
  const double at_least = kLeastComing * static_cast<double>(held);
  const auto part = [&](const Message& message) {
    return coming.PartOf(std::max(coming.bytes, at_least), message);
  };
  const auto kind_of = [&](const Message& message) {
    const auto bytes = static_cast<double>(message.bytes_);
    if (message.bytes_ == 0) return Kind::kSilent;
    const bool overdue =
        now - message.since_ > kOverdue + bytes / kMovingBytesPerSecond;
    if (overdue &&
        coming.PartOf(coming.bytes, message) > kTimesAnnounced * bytes) {
      return Kind::kLiar;
    }
    if (!IsSmall(message.bytes_)) return Kind::kLarge;
    return overdue ? Kind::kLate : Kind::kSpared;
  };
  // What was cut off before is on its way out.
  for (const Message* const message : coming_) {
    if (message->cut_) over -= part(*message);
  }
  const auto cut_if = [&](Message* message, Kind kind) {
    if (over <= 0 || message->cut_ || message->since_ > now - kOld ||
        kind_of(*message) != kind) {
      return;
    }
    const bool unsaid = kind == Kind::kSilent || kind == Kind::kLiar;
    over -= (unsaid ? kLeastOfPart : 1) * part(*message);
    Cut(message, kind == Kind::kSilent ? Why::kNotAnnounced : Why::kAnnounced,
        victims, coming.PartOf(coming.bytes, *message));
  };
  const auto cut_newest = [&](Kind kind) {
    std::for_each(coming_.rbegin(), coming_.rend(),
                  [&](Message* message) { cut_if(message, kind); });
  };
  // A stream that waits for its client looks like a liar, too, but is touched
  // with each of its messages.
  const auto cut_oldest = [&](Kind kind) {
    for (Message* const message : coming_) cut_if(message, kind);
  };
  const auto is_unread = [&](const Message& message) {
    return message.bytes_ <= kUncountedBytes && !message.of_stream_;
  };
  for (const Message* const message : going_) {
    if (message->since_ > now - kUnreadAfter) break;
    if (!message->cut_ || !is_unread(*message)) continue;
    over -= static_cast<double>(message->bytes_ + kCallBytes);
  }
  cut_newest(Kind::kSilent);
  cut_oldest(Kind::kLiar);
  over -= (kMostHeldUnread - kMostHeldUnsaid) * budget;
  for (Message* const message : going_) {
    if (over <= 0 || message->since_ > now - kUnreadAfter) break;
    if (message->cut_ || !is_unread(*message)) continue;
    over -= static_cast<double>(message->bytes_ + kCallBytes);
    Cut(message, Why::kUnread, victims);
  }
  over -= (kMostHeld - kMostHeldUnread) * budget;
  // The others bring no more than is claimed for them.
  over -= soon.at_latest - soon.usual;
  cut_newest(Kind::kLarge);
  cut_oldest(Kind::kLate);
}

Transfers::Soon Transfers::Expect(double now, std::int64_t held) {
  const auto grown = static_cast<double>(
      std::max<std::int64_t>(held - std::exchange(last_, held), 0));
  const double interval = now - std::exchange(last_at_, now);
  longest_interval_ = std::max(std::min(interval, kLongestInterval),
                               kForget * longest_interval_);
  const auto is = static_cast<double>(held);
  const double times =
      interval > 0 ? std::max(longest_interval_ / interval, 1.0) : 1;
  return {is + grown, is + grown * times};
}

bool Transfers::Tick() {
  const double now = Now();
  bool old = false, any = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    any = !coming_.empty() || !going_.empty();
    for (const std::list<Message*>* const list : {&coming_, &going_}) {
      old = old || (!list->empty() && list->front()->since_ < now - kOld);
    }
  }
  if (!old) {
    if (std::exchange(told_, false)) admission_->SetHeld(0);
    return any;
  }
  if (now < next_) return true;
  const double before = ThreadCpu();
  const std::int64_t held = held_();
  const double took = ThreadCpu() - before;
  const bool quiet =
      admission_->waiting() == 0 && held < admission_->budget() / 4;
  if (!std::exchange(told_, true)) {
    last_ = held;
    last_at_ = now;
    longest_interval_ = 0;
  }
  admission_->SetHeld(held);
  Victims victims;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (admission_->waiting() > 0) {
      ChooseShrunk(now, held, &victims);
      ChooseSlow(now, held, &victims);
    }
    ChooseExcess(now, held, Expect(now, held), &victims);
  }
  for (const Victims::Victim& victim : victims.shrink) {
    victim.owner->ShrinkClaim(victim.number);
  }
  for (const Victims::Victim& victim : victims.cut) {
    if (victim.why == Why::kNotAnnounced) {
      victim.owner->ExpectMore(victim.number, victim.holds);
    }
    cut_ += victim.owner->CutOff(victim.direction, victim.number,
                                 ErrorOf(victim.why));
  }
  relieve_(held);
  const double usual = std::min(took, std::exchange(last_took_, took));
  next_ = Now() + std::max(kPause * usual, quiet ? kQuietPause : 0);
  return true;
}

}  // namespace posenc::server
