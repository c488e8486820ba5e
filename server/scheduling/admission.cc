#include "server/scheduling/admission.h"

#include <vector>

#include "server/base/errors.h"

namespace posenc::server {
namespace {

using Clock = std::chrono::steady_clock;

// A small response passes a large response that has waited for less than this
// time.
constexpr auto kPatience = std::chrono::seconds(2);

absl::Status NoRoom() {
  return OverBudget("no room beside the calls in progress");
}

}  // namespace

void Admission::SetLimits(std::int64_t budget_bytes, std::size_t max_waiting) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    budget_ = budget_bytes;
    max_waiting_ = max_waiting;
  }
  AdmitWaiting();
}

// If nothing is claimed, a call may exceed the budget, because no other call
// could release bytes for it.
bool Admission::Fits(std::int64_t bytes) const {
  return claimed_ == 0 || claimed_ + bytes <= budget_;
}

// A call that needs almost the whole budget may enter while other calls hold up
// to 1/kSmallsPart of the budget. Otherwise it would wait for ever, because
// small calls hold a part of the budget all the time.
bool Admission::FitsFirst(std::int64_t bytes) const {
  return Fits(std::min(bytes, budget_ - budget_ / kSmallsPart));
}

// A small call does not wait behind large calls, which may wait for memory or
// for a stalled peer. For this purpose, small calls may exceed the budget by
// 1/kSmallsPart of it.
bool Admission::PassesAsSmall(std::int64_t bytes) const {
  return IsSmall(bytes) && claimed_ + bytes <= budget_ + budget_ / kSmallsPart;
}

// A small response may also pass large responses. Otherwise it would wait for
// clients that do not read large responses. A small response may pass only
// until the first large response has waited for kPatience. Otherwise a call
// that needs the whole budget would wait as long as small calls arrive.
bool Admission::ResponsePassesAsSmall(std::int64_t bytes) const {
  return PassesAsSmall(bytes) &&
         (inside_.empty() ||
          Clock::now() - inside_.front()->since_ < kPatience);
}

Admission::Entry Admission::Enter(std::int64_t bytes, Ticket* ticket,
                                  Waiter* waiter) {
  std::int64_t left = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if ((!outside_.empty() || !inside_.empty() || !FitsFirst(bytes)) &&
        !PassesAsSmall(bytes)) {
      if (outside_.size() >= max_waiting_) return Entry::kFull;
      ticket->bytes_ = bytes;
      Wait(&outside_, ticket, waiter);
      return Entry::kWaiting;
    }
    Claim(bytes);
    left = Left();
  }
  React(left);
  return Entry::kAdmitted;
}

Admission::Entry Admission::EnterMore(std::int64_t bytes, std::int64_t held,
                                      Ticket* ticket, Waiter* waiter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool alone = claimed_ == waiting_held_ + held;
  const bool fits = Fits(bytes) || (alone && claimed_ + bytes <= budget_);
  if (bytes > budget_ - held) return Entry::kNever;
  const bool behind = !inside_.empty() || (IsSmall(held) && !outside_.empty());
  if ((!fits || (behind && !alone)) && !ResponsePassesAsSmall(bytes)) {
    if (alone) return Entry::kFull;
    if (waiter == nullptr) return Entry::kWaiting;
    // A call with a small claim waits in outside_, because it can release few
    // bytes. Large responses to small requests must not overtake the calls
    // there.
    Wait(IsSmall(held) ? &outside_ : &inside_, ticket, waiter);
    ticket->bytes_ = bytes;
    ticket->held_ = held;
    waiting_held_ += held;
    return Entry::kWaiting;
  }
  Claim(bytes);
  return Entry::kAdmitted;
}

void Admission::Wait(std::list<Ticket*>* queue, Ticket* ticket,
                     Waiter* waiter) {
  const auto place = queue == &outside_ ? FindTurn(ticket) : queue->end();
  ticket->position_ = queue->insert(place, ticket);
  ticket->waiter_ = waiter;
  ticket->queue_ = queue;
  ticket->since_ = Clock::now();
}

std::list<Admission::Ticket*>::iterator Admission::FindTurn(Ticket* ticket) {
  // No ticket enters before the first ticket, so the first ticket is always
  // served next.
  std::int64_t round = outside_.empty() ? 0 : outside_.front()->round_;
  for (const Ticket* const other : outside_) {
    if (other->party_ == ticket->party_) round = other->round_ + 1;
  }
  ticket->round_ = round;
  return std::find_if(
      outside_.begin(), outside_.end(),
      [round](const Ticket* other) { return other->round_ > round; });
}

void Admission::StopWaiting(Ticket* ticket) {
  waiting_held_ -= std::exchange(ticket->held_, 0);
  ticket->queue_->erase(ticket->position_);
  ticket->queue_ = nullptr;
}

Admission::Ticket* Admission::LastHolder() const {
  if (!inside_.empty()) return inside_.back();
  const auto last =
      std::find_if(outside_.rbegin(), outside_.rend(),
                   [](const Ticket* ticket) { return ticket->held_ > 0; });
  return last == outside_.rend() ? nullptr : *last;
}

bool Admission::Leave(Ticket* ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ticket->queue_ == nullptr) return false;
  StopWaiting(ticket);
  return true;
}

bool Admission::TryClaim(std::int64_t bytes, Ticket* ticket,
                         std::int64_t beyond) {
  std::int64_t left = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!Fits(bytes) && (beyond == 0 || claimed_ + bytes > budget_ + beyond)) {
      return false;
    }
    Grow(bytes, ticket);
    left = Left();
  }
  React(left);
  return true;
}

void Admission::Grow(std::int64_t bytes, Ticket* ticket) {
  Claim(bytes);
  if (ticket != nullptr && ticket->queue_ != nullptr && ticket->held_ > 0) {
    ticket->held_ += bytes;
    waiting_held_ += bytes;
  }
}

void Admission::Release(std::int64_t bytes) {
  std::vector<std::pair<Waiter*, absl::Status>> told;
  std::int64_t left = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    claimed_ -= bytes;
    for (std::list<Ticket*>* const queue : {&inside_, &outside_}) {
      while (!queue->empty()) {
        Ticket* const ticket = queue->front();
        const std::int64_t held = ticket->held_, wanted = ticket->bytes_;
        // True if the budget was lowered while the call waited, and can no
        // longer hold the call.
        const bool never = held > 0 && wanted > budget_ - held;
        if (!never && !(held > 0 ? Fits(wanted) : FitsFirst(wanted))) break;
        told.emplace_back(ticket->waiter_, never ? NoRoom() : absl::OkStatus());
        StopWaiting(ticket);
        if (!never) Claim(wanted);
      }
      if (!queue->empty()) break;
    }
    // If all calls that hold a claim wait for more, this is a deadlock. Then
    // the last of these calls is refused. When this call releases its claim,
    // this function runs again.
    if (Ticket* const last = LastHolder();
        last != nullptr && claimed_ == waiting_held_) {
      told.emplace_back(last->waiter_, NoRoom());
      StopWaiting(last);
    }
    left = Left();
  }
  if (!told.empty()) React(left);
  for (const auto& [waiter, status] : told) waiter->Resume(status);
}

void Admission::Claim(std::int64_t bytes) {
  claimed_ += bytes;
  peak_ = std::max(peak_, claimed_);
}

void Admission::React(std::int64_t left) const {
  if (react_) react_(left);
}

std::int64_t Admission::TakePeak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(peak_, claimed_);
}

std::int64_t Admission::claimed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return claimed_;
}

std::size_t Admission::waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return outside_.size() + inside_.size();
}

}  // namespace posenc::server
