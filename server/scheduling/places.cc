#include "server/scheduling/places.h"

#include <algorithm>

#include "server/base/errors.h"

namespace posenc::server {
namespace {

// Refusing a call takes the server about 20 us, most of it in gRPC. So calls
// that are computed in less than twice this time are not refused.
constexpr double kCheapSeconds = 40e-6;

// If n calls are at work on t threads, each call takes n / t times as long as a
// single call. Above this slowdown, more calls at work do not help, because
// they only share the same processors.
constexpr double kMostSlowdown = 2.0;

// The limit may change each time that this many calls have ended, but only
// after at least `limit_` calls.
constexpr std::size_t kLeastEnded = 10;

// Upper bound on the calls at work, because each call may hold a message.
constexpr double kMostLimit = 1024;

// A call may wait for at most this part of its remaining time. The rest is a
// reserve, because estimates may be wrong, and work on a late call is wasted.
constexpr double kWaitPart = 0.25;

// Weight of the newest call in a mean.
constexpr double kNewest = 1.0 / 32;

double Mean(double mean, double value) {
  return mean + kNewest * (value - mean);
}

absl::Status TooLate() {
  return OverBudget("the server could not answer before the deadline");
}

}  // namespace

Places::Places(int threads, std::size_t max_waiting, int methods,
               std::function<double()> now)
    : lowest_limit_(threads + 1.0),
      now_(std::move(now)),
      max_waiting_(max_waiting),
      limit_(2.0 * threads + 1),
      methods_(static_cast<std::size_t>(methods)) {}

double Places::SecondsOf(int method) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Expected(method);
}

// Returns the expected time until this call gets a place. The calls of its own
// party with earlier deadlines come first. T is the expected time of these
// calls and of this call together. Parties are served in turn. So each other
// party also runs calls first: calls that together take the time T, or all its
// calls if they take less time.
double Places::WaitBefore(const Request& request) const {
  double own = 0;
  const auto mine = parties_.find(request.party);
  if (mine != parties_.end()) {
    for (const auto& [deadline, ticket] : mine->second.calls) {
      if (deadline > request.deadline) break;
      own += Expected(ticket->request_.method);
    }
  }
  // Half of this call's time stands for the time until a call at work ends.
  double all = own + Expected(request.method) / 2;
  for (const auto& [id, party] : parties_) {
    if (id == request.party) continue;
    all += std::min(party.seconds, own + Expected(request.method));
  }
  return all / limit_;
}

std::optional<absl::Status> Places::Enter(const Request& request,
                                          Ticket* ticket, Waiter* waiter) {
  const double now = now_();
  const std::lock_guard<std::mutex> lock(mutex_);
  ticket->request_ = request;
  const Method& method = methods_[request.method];
  if (!request.large && method.known && method.computing < kCheapSeconds) {
    return absl::OkStatus();
  }
  if (!IsFull() && waiting_ == 0) {
    Grant(ticket, now);
    return absl::OkStatus();
  }
  was_full_ = true;
  if (request.refusable) {
    const double left = request.deadline - now;
    if (waiting_ >= max_waiting_ || WaitBefore(request) > kWaitPart * left ||
        Expected(request.method) > left) {
      return TooManyCalls();
    }
  }
  ticket->waiter_ = waiter;
  Add(ticket);
  return std::nullopt;
}

void Places::Grant(Ticket* ticket, double now) {
  ticket->held_ = true;
  ticket->since_ = now;
  ++at_work_;
  if (IsCrowded()) crowded_at_ = now;
}

void Places::Add(Ticket* ticket) {
  const auto [at, first] = parties_.try_emplace(ticket->request_.party);
  if (first) turns_.push_back(ticket->request_.party);
  Party& party = at->second;
  ticket->position_ = party.calls.emplace(ticket->request_.deadline, ticket);
  party.seconds += Expected(ticket->request_.method);
  ++waiting_;
}

void Places::Remove(Ticket* ticket) {
  const auto at = parties_.find(ticket->request_.party);
  Party& party = at->second;
  party.calls.erase(ticket->position_);
  // The expected time of the method may have grown since the call was added.
  // The difference could then be negative.
  party.seconds =
      std::max(0.0, party.seconds - Expected(ticket->request_.method));
  ticket->waiter_ = nullptr;
  --waiting_;
  if (!party.calls.empty()) return;
  turns_.erase(std::find(turns_.begin(), turns_.end(), at->first));
  parties_.erase(at);
}

bool Places::StopWaiting(Ticket* ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ticket->waiter_ == nullptr) return false;
  Remove(ticket);
  return true;
}

void Places::Leave(Ticket* ticket, std::optional<absl::Duration> computed,
                   absl::Duration unread) {
  Told told;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Method* const method = &methods_[ticket->request_.method];
    if (computed) {
      const double computing = absl::ToDoubleSeconds(*computed);
      method->computing =
          method->known ? Mean(method->computing, computing) : computing;
      method->known = true;
    }
    if (!ticket->held_) return;
    const double now = now_();
    ticket->held_ = false;
    if (IsCrowded()) crowded_at_ = now;
    --at_work_;
    if (computed) {
      Adapt(method, now - ticket->since_ - absl::ToDoubleSeconds(unread),
            ticket->since_ > crowded_at_);
    }
    told = Fill(now);
  }
  for (const auto& [waiter, status] : told) waiter->Resume(status);
}

// Updates the means of a method, and changes the limit if enough calls have
// ended. If calls become larger for a long time, the limit shrinks to its lower
// bound, where idle_seconds is measured again.
void Places::Adapt(Method* method, double seconds, bool alone) {
  if (method->seconds == 0) method->seconds = method->idle_seconds = seconds;
  method->seconds = Mean(method->seconds, seconds);
  method->idle_seconds = alone ? Mean(method->idle_seconds, seconds)
                               : std::min(method->idle_seconds, seconds);
  slowdowns_ += seconds / std::max(method->idle_seconds, 1e-6);
  ++ended_;
  if (ended_ < kLeastEnded || static_cast<double>(ended_) < limit_) return;
  const double slowdown = slowdowns_ / static_cast<double>(ended_);
  if (slowdown > kMostSlowdown) {
    limit_ = std::max(lowest_limit_, 0.9 * limit_);
  } else if (was_full_) {
    limit_ = std::min(kMostLimit, limit_ + 1);
  }
  slowdowns_ = 0;
  ended_ = 0;
  was_full_ = false;
}

Places::Told Places::Fill(double now) {
  Told told;
  while (waiting_ > 0 && !IsFull()) {
    const std::uint64_t next = turns_.front();
    turns_.pop_front();
    turns_.push_back(next);
    Ticket* const ticket = parties_[next].calls.begin()->second;
    Waiter* const waiter = ticket->waiter_;
    const Request& request = ticket->request_;
    const bool lost =
        request.refusable && now + Expected(request.method) > request.deadline;
    Remove(ticket);
    if (!lost) Grant(ticket, now);
    told.emplace_back(waiter, lost ? TooLate() : absl::OkStatus());
  }
  return told;
}

void Places::SetMaxWaiting(std::size_t max_waiting) {
  const std::lock_guard<std::mutex> lock(mutex_);
  max_waiting_ = max_waiting;
}

Places::State Places::state() const {
  State state;
  const std::lock_guard<std::mutex> lock(mutex_);
  state.at_work = at_work_;
  state.waiting = waiting_;
  state.limit = limit_;
  return state;
}

}  // namespace posenc::server
