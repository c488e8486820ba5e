#include "server/budget/turns.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <utility>

namespace posenc::server {
namespace {

constexpr std::size_t kMostServed = 256;
constexpr std::int64_t kBytesOfThread = std::int64_t{8} << 20;
constexpr double kMostCost = 0.02;

// Seconds; see the head of turns.h. Nobody waits behind later calls for longer
// than kLongWait.
constexpr double kLongWait = 5;
constexpr double kLongDeadline = 4.5;  // from here on a tenth may be waited
constexpr double kStandingWait = 0.005;
constexpr double kBurstWait = 0.1;
constexpr double kLightWait = 0.05;
// At 0.7 of its capacity a server that its host has halted for 0.1 s has worked
// off what came meanwhile after 0.23 s.
constexpr double kStandingAfter = 0.25;
// The queue counts as standing until it is empty and nobody was refused for so
// long. Only the second is not enough: a server past its capacity refuses
// nobody while its host halts it.
constexpr double kCalmAfter = 0.2;

// A lease: what a call needs at least, by the clock, on a machine that is as
// busy as it may be with kMostServed calls; loopback moves 200 MB/s then.
constexpr double kLease = 0.02;
constexpr double kLeaseBytesPerSecond = 200e6;
constexpr double kLeaseShares = 24;

// How often it is measured what refusing takes, and the least that is believed
// to be left beside it.
constexpr double kMeasureRefusing = 0.02;
constexpr double kLeastLeft = 0.1;

// The processor idles if the server uses less than this part of it between two
// ticks, which are never far apart while calls wait. As many calls as this are
// in service then.
constexpr double kIdlePart = 0.3;
constexpr double kLongTick = 0.05;
constexpr std::size_t kIdleSlots = 64;

// A call is lost if this many times what is in service does not end before its
// deadline.
constexpr double kLostMargin = 1.5;

// What a call that failed may make of the estimate.
constexpr double kMostGrowth = 4;

// What moving messages costs beside computing: at least a second for a
// gigabyte, which is the fastest that gRPC was seen to move them; at most, on a
// machine that is as busy as may be, 1 ms and kLeaseBytesPerSecond. A peer that
// stalls costs the least, and one on a slow line no more than the most, for
// however long their calls are in service. (Shares without a bound grew by what
// one stalled sender a second left in them, to 0.1 s within four minutes, as
// leases grew with them; a quarter of all other calls was refused then, at half
// of the capacity.)
constexpr double kMovedAtBestPerSecond = 1e9;
constexpr double kMostToMove = 1e-3;

// A kind whose calls were refused becomes cheap after so long: past capacity
// estimates swing, and calls that are all let in then are all late.
constexpr double kCheapAfter = 1;

// Of cheap calls every 16th is measured, to see whether they still are.
constexpr int kMeasureEvery = 16;

double Seconds(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Turns::Clocks Turns::RealClocks() {
  return {[] { return Seconds(CLOCK_MONOTONIC); },
          [] { return Seconds(CLOCK_PROCESS_CPUTIME_ID); }};
}

Turns::Turns(int threads, std::size_t max_waiting, int methods, Clocks clocks)
    : threads_(std::max(threads, 1)),
      methods_(methods),
      clocks_(std::move(clocks)),
      max_waiting_(max_waiting),
      costs_(methods),
      learning_(CallCosts::KindOf(methods, std::nullopt)),
      passed_(learning_.size()),
      kind_refused_at_(learning_.size(),
                       -std::numeric_limits<double>::infinity()),
      processor_at_(clocks_.processor()),
      empty_at_(clocks_.now()),
      ticker_(std::chrono::milliseconds(5), [this] { return Tick(); }) {}

// own_clock_ runs as fast as one of the calls in service gets on.
void Turns::Advance() {
  const double processor = clocks_.processor();
  const double used = processor - processor_at_;
  const std::int64_t refusing =
      refusing_nanos_.load(std::memory_order_relaxed) - refusing_at_;
  const double refused = std::min(used, 1e-9 * static_cast<double>(refusing));
  if (!served_.empty()) {
    own_clock_ +=
        (used - refused) / (threads_ * static_cast<double>(served_.size()));
  }
  processor_at_ = processor;
  // A refusal's time may be known later than the processor's.
  refusing_at_ += static_cast<std::int64_t>(1e9 * refused);
}

double Turns::LeftToServe(double now) {
  const double since = now - measured_;
  if (since < kMeasureRefusing) return left_to_serve_;
  const std::int64_t refusing = refusing_nanos_.load(std::memory_order_relaxed);
  const double part = 1e-9 *
                      static_cast<double>(refusing - measured_refusing_) /
                      (threads_ * since);
  left_to_serve_ = std::max(1 - part, kLeastLeft);
  measured_ = now;
  measured_refusing_ = refusing;
  return left_to_serve_;
}

void Turns::AddRefusing(double seconds) {
  refusing_nanos_.fetch_add(static_cast<std::int64_t>(1e9 * seconds),
                            std::memory_order_relaxed);
}

bool Turns::Fits(std::int64_t bytes, bool light) const {
  const std::size_t slots =
      idle_ ? kIdleSlots : 2 * static_cast<std::size_t>(threads_) + 1;
  const std::size_t n = served_.size();
  if (n < slots || (light && served_light_ < slots)) return true;
  return n < kMostServed && served_cost_ < kMostCost &&
         served_bytes_ + bytes <= threads_ * kBytesOfThread;
}

void Turns::QueueChanged(double now) {
  if (queue_.empty()) {
    empty_at_ = now;
    if (standing_ && now - refused_at_ > kCalmAfter) standing_ = false;
  } else if (now - empty_at_ > kStandingAfter && !standing_) {
    standing_ = true;
    refused_at_ = now;
  }
}

bool Turns::TooLate(const Request& request, const FairQueue::Call& call,
                    bool light, double now) {
  const double left = request.deadline - now;
  const double ahead =
      (call.cost + served_cost_ / 2 + queue_.Ahead(call)) / LeftToServe(now);
  double longest = standing_ ? kStandingWait : kBurstWait;
  if (light) longest = std::max(longest, kLightWait);
  if (left >= kLongDeadline) longest = std::max(longest, left / 10);
  const bool late = ahead > std::min(left / 4, longest);
  if (late && standing_) refused_at_ = now;
  return late;
}

// An idle server tries, whatever it believes that the call costs.
bool Turns::IsLost(const FairQueue::Call& call, double now) const {
  const double takes = kLostMargin * (served_cost_ + call.cost);
  return call.deadline < now ||
         (!served_.empty() && call.deadline < now + takes);
}

bool Turns::MustLearn(int kind) const {
  return !costs_.known(kind) && !learning_[kind];
}

void Turns::CountRefusal(int kind, double now) {
  ++refused_;
  kind_refused_at_[kind] = now;
}

// By deadline; but nobody waits behind later calls for longer than 5 s. If much
// of a call has been done already, it waits behind them for 100 ms at most.
double Turns::OrderOf(const Request& request, double now) {
  return std::min(request.deadline,
                  now + (request.refusable ? kLongWait : kBurstWait));
}

// A message comes and goes.
std::int64_t Turns::ExpectedBytes(const Request& request) const {
  const auto bytes = static_cast<std::int64_t>(costs_.bytes(request.kind));
  return costs_.known(request.kind) ? bytes
                                    : std::max(bytes, 2 * request.announced);
}

void Turns::Prepare(const Request& request, Waiter* waiter, double now) {
  waiter->kind_ = request.kind;
  waiter->call_.owner = waiter;
  waiter->call_.peer = request.peer;
  waiter->call_.deadline = request.deadline;
  waiter->call_.order = OrderOf(request, now);
  waiter->call_.cost = costs_.share(request.kind);
  waiter->bytes_ = ExpectedBytes(request);
  waiter->lease_ =
      kLease +
      static_cast<double>(request.announced > 0 ? request.announced
                                                : waiter->bytes_ / 2) /
          kLeaseBytesPerSecond +
      kLeaseShares * waiter->call_.cost;
  waiter->light_ = queue_.Light(request.peer, now);
}

bool Turns::Refuses(const Request& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int kind = request.kind;
  if (costs_.cheap(kind) || MustLearn(kind)) return false;
  const double now = Now();
  const bool light = queue_.Light(request.peer, now);
  FairQueue::Call call;
  call.peer = request.peer;
  call.deadline = request.deadline;
  call.order = OrderOf(request, now);
  call.cost = costs_.share(kind);
  bool refused = IsLost(call, now);
  if (!refused &&
      !((queue_.empty() || light) && Fits(ExpectedBytes(request), light))) {
    QueueChanged(now);
    refused = TooLate(request, call, light, now);
  }
  if (refused) CountRefusal(kind, now);
  return refused;
}

Turns::Entry Turns::Enter(const Request& request, Waiter* waiter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int kind = request.kind;
  const bool cheap = costs_.cheap(kind);
  if (cheap && ++passed_[kind] % kMeasureEvery != 0) return Entry::kNotNeeded;
  const double now = Now();
  Advance();
  QueueChanged(now);
  Prepare(request, waiter, now);
  // The first call of a kind is served at once: what is not known cannot be
  // judged, and would never be known.
  const bool first = MustLearn(kind);
  waiter->first_ = first;
  if (first) learning_[kind] = true;
  const bool lost = !first && request.refusable && IsLost(waiter->call_, now);
  if (!lost && (first || cheap ||
                ((queue_.empty() || waiter->light_) &&
                 Fits(waiter->bytes_, waiter->light_)))) {
    Serve(waiter, now);
    return Entry::kServed;
  }
  const bool full = queue_.size() >= max_waiting_;
  if (lost || (request.refusable && (full || TooLate(request, waiter->call_,
                                                     waiter->light_, now)))) {
    CountRefusal(kind, now);
    return Entry::kRefused;
  }
  waiter->state_ = Waiter::State::kWaiting;
  queue_.Push(&waiter->call_, now);
  ticker_.Wake();
  return Entry::kWaiting;
}

void Turns::Serve(Waiter* waiter, double now) {
  waiter->state_ = Waiter::State::kServed;
  waiter->started_ = own_clock_;
  waiter->since_ = now;
  waiter->lease_end_ = now + waiter->lease_;
  waiter->served_ = served_.insert(served_.end(), waiter);
  served_bytes_ += waiter->bytes_;
  served_cost_ += waiter->call_.cost;
  if (waiter->light_) ++served_light_;
  queue_.Start(&waiter->call_, now);
}

void Turns::EndService(Waiter* waiter, double now) {
  served_.erase(waiter->served_);
  served_bytes_ -= waiter->bytes_;
  served_cost_ = served_.empty() ? 0 : served_cost_ - waiter->call_.cost;
  if (waiter->light_) --served_light_;
  queue_.End(&waiter->call_, own_clock_ - waiter->started_, now);
}

Turns::Calls Turns::Fill(double now) {
  Calls calls;
  while (FairQueue::Call* const front = queue_.Front()) {
    auto* const waiter = static_cast<Waiter*>(front->owner);
    if (!Fits(waiter->bytes_, waiter->light_)) break;
    queue_.Remove(front);
    if (IsLost(*front, now)) {
      waiter->state_ = Waiter::State::kOut;
      CountRefusal(waiter->kind_, now);
      ++lost_;
      calls.lost.push_back(waiter);
      continue;
    }
    Serve(waiter, now);
    calls.came.push_back(waiter);
  }
  QueueChanged(now);
  return calls;
}

void Turns::Tell(const Calls& calls) {
  for (Waiter* const waiter : calls.came) waiter->TurnCame();
  for (Waiter* const waiter : calls.lost) waiter->TurnLost();
}

// A call that did not end well, or whose lease was over, tells the least that
// its kind costs. That counts, or a server whose calls are all late would never
// learn why.
void Turns::Learn(const Waiter& waiter, std::int64_t moved, double computing,
                  bool lapsed, double now) {
  const int kind = waiter.kind_;
  const bool calm = now - kind_refused_at_[kind] > kCheapAfter;
  if (moved >= 0 && !lapsed) {
    const double most = computing + kMostToMove +
                        static_cast<double>(moved) / kLeaseBytesPerSecond;
    costs_.Learn(kind, std::min(waiter.used_, most), moved, calm);
    return;
  }
  const double share = costs_.share(kind);
  const double bytes = costs_.bytes(kind);
  const double least =
      std::min(waiter.used_, computing + bytes / kMovedAtBestPerSecond);
  if (least > share) {
    costs_.Learn(kind, std::min(least, kMostGrowth * share),
                 static_cast<std::int64_t>(bytes), calm);
  }
}

bool Turns::StopWaiting(Waiter* waiter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (waiter->state_ != Waiter::State::kWaiting) return false;
  queue_.Remove(&waiter->call_);
  waiter->state_ = Waiter::State::kOut;
  QueueChanged(Now());
  return true;
}

void Turns::Leave(Waiter* waiter, std::int64_t moved, double computing) {
  Calls calls;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const double now = Now();
    Advance();
    const int kind = waiter->kind_;
    const bool lapsed = waiter->state_ == Waiter::State::kLapsed;
    if (!lapsed) {
      waiter->used_ = own_clock_ - waiter->started_;
      EndService(waiter, now);
    }
    waiter->state_ = Waiter::State::kOut;
    if (waiter->first_) learning_[kind] = false;
    if (moved != kNotWorkedOn) Learn(*waiter, moved, computing, lapsed, now);
    calls = Fill(now);
  }
  Tell(calls);
}

void Turns::SetMaxWaiting(std::size_t max_waiting) {
  const std::lock_guard<std::mutex> lock(mutex_);
  max_waiting_ = max_waiting;
}

void Turns::ForgetIdlePeers() {
  const double now = Now();
  const std::lock_guard<std::mutex> lock(mutex_);
  queue_.Forget(now);
}

Turns::State Turns::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  State state = {served_.size(), queue_.size(), refused_, lost_, {}};
  for (int method = 0; method < methods_; ++method) {
    state.shares.push_back(costs_.ShareOfMethod(method));
  }
  return state;
}

bool Turns::Tick() {
  Calls calls;
  bool again = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const double now = Now();
    const double before = processor_at_ticks_;
    Advance();
    processor_at_ticks_ = processor_at_;
    const double since = now - std::exchange(ticked_, now);
    // While the processor idles, calls in service wait for their peers, however
    // long their leases are.
    bool busy = false;
    for (Waiter* const waiter : served_) {
      if (!waiter->busy_.load(std::memory_order_relaxed)) continue;
      busy = true;
      waiter->lease_end_ = now + waiter->lease_;
    }
    idle_ = !busy && since < kLongTick &&
            processor_at_ - before < kIdlePart * threads_ * since;
    if (!queue_.empty()) {
      for (auto it = served_.begin(); it != served_.end();) {
        Waiter* const waiter = *it++;
        if (waiter->lease_end_ > now &&
            !(idle_ && waiter->since_ < before_tick_)) {
          continue;
        }
        waiter->state_ = Waiter::State::kLapsed;
        waiter->used_ = own_clock_ - waiter->started_;
        EndService(waiter, now);
      }
    }
    calls = Fill(now);
    again = !queue_.empty();
    if (!again) idle_ = false;
    before_tick_ = now;
  }
  Tell(calls);
  return again;
}

}  // namespace posenc::server
