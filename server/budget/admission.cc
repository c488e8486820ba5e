#include "server/budget/admission.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace posenc::server {
namespace {

using Clock = std::chrono::steady_clock;

// For so long small responses pass a larger one. A peer who does not read what
// it asked for is cut off about then (Transfers).
constexpr auto kPatience = std::chrono::seconds(2);

}  // namespace

void Admission::SetLimits(std::int64_t budget_bytes, std::size_t max_waiting) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    budget_ = budget_bytes;
    max_waiting_ = max_waiting;
  }
  AdmitWaiting();
}

std::int64_t Admission::Bounded(std::int64_t bytes) const {
  return std::min(bytes, budget());
}

// What is held beyond the claims stops others, but not the last: nobody else
// would be there to release anything.
bool Admission::Fits(std::int64_t bytes) const {
  return claimed_ == 0 || std::max(claimed_, held_) + bytes <= budget_;
}

// A small call need not stand behind large ones that wait for room, or for a
// peer that stalls. Claims beyond the budget are those of such calls.
bool Admission::PassesAsSmall(std::int64_t bytes) const {
  return IsSmall(bytes) && claimed_ + bytes <= budget_ + budget_ / kSmallsPart;
}

// A small response may pass as well, so that large ones that nobody reads hold
// up nobody else. It must not pass for ever: who needs the whole budget would
// wait as long as there are small calls.
bool Admission::ResponsePassesAsSmall(std::int64_t bytes) const {
  return PassesAsSmall(bytes) &&
         held_ + bytes <= budget_ + budget_ / kSmallsPart &&
         (inside_.empty() ||
          Clock::now() - inside_.front()->since_ < kPatience);
}

Admission::Entry Admission::Enter(std::int64_t bytes, Waiter* waiter) {
  std::int64_t left = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if ((!outside_.empty() || !inside_.empty() || !Fits(bytes)) &&
        !PassesAsSmall(bytes)) {
      if (outside_.size() >= max_waiting_) return Entry::kFull;
      waiter->bytes_ = bytes;
      Wait(&outside_, waiter);
      return Entry::kWaiting;
    }
    Claim(bytes);
    left = Left();
  }
  React(left);
  return Entry::kAdmitted;
}

Admission::Entry Admission::EnterMore(std::int64_t bytes, std::int64_t held,
                                      Waiter* waiter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool alone = claimed_ == waiting_held_ + held;
  const bool fits = Fits(bytes) || (alone && claimed_ + bytes <= budget_);
  if (bytes > budget_ - held) return Entry::kNever;
  const bool behind = !inside_.empty() || (IsSmall(held) && !outside_.empty());
  if ((!fits || (behind && !alone)) && !ResponsePassesAsSmall(bytes)) {
    if (alone) return Entry::kFull;
    waiter->bytes_ = bytes;
    waiter->held_ = held;
    waiting_held_ += held;
    // Who holds next to nothing has nothing to give back, and large responses
    // to small requests must not go before those who wait outside.
    Wait(IsSmall(held) ? &outside_ : &inside_, waiter);
    return Entry::kWaiting;
  }
  Claim(bytes);
  return Entry::kAdmitted;
}

void Admission::Wait(std::list<Waiter*>* queue, Waiter* waiter) {
  waiter->queue_ = queue;
  waiter->since_ = Clock::now();
  waiter->position_ = queue->insert(queue->end(), waiter);
}

void Admission::StopWaiting(Waiter* waiter) {
  waiting_held_ -= std::exchange(waiter->held_, 0);
  waiter->queue_->erase(waiter->position_);
  waiter->queue_ = nullptr;
}

Admission::Waiter* Admission::NewestHolder() const {
  if (!inside_.empty()) return inside_.back();
  for (auto at = outside_.rbegin(); at != outside_.rend(); ++at) {
    if ((*at)->held_ > 0) return *at;
  }
  return nullptr;
}

bool Admission::Leave(Waiter* waiter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (waiter->queue_ == nullptr) return false;
  StopWaiting(waiter);
  return true;
}

bool Admission::TryClaim(std::int64_t bytes, Waiter* waiter,
                         std::int64_t beyond) {
  std::int64_t left = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!Fits(bytes) && (beyond == 0 || claimed_ + bytes > budget_ + beyond)) {
      return false;
    }
    Grow(bytes, waiter);
    left = Left();
  }
  React(left);
  return true;
}

void Admission::ClaimHeld(std::int64_t bytes, Waiter* waiter) {
  std::int64_t left = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Grow(bytes, waiter);
    left = Left();
  }
  React(left);
}

void Admission::Grow(std::int64_t bytes, Waiter* waiter) {
  Claim(bytes);
  if (waiter != nullptr && waiter->queue_ != nullptr && waiter->held_ > 0) {
    waiter->held_ += bytes;
    waiting_held_ += bytes;
  }
}

void Admission::SetHeld(std::int64_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool less = bytes < held_;
    held_ = bytes;
    if (!less || (outside_.empty() && inside_.empty())) return;
  }
  AdmitWaiting();
}

void Admission::Release(std::int64_t bytes) {
  std::vector<Waiter*> admitted;
  Waiter* refused = nullptr;
  std::int64_t left = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    claimed_ -= bytes;
    for (std::list<Waiter*>* const queue : {&inside_, &outside_}) {
      while (!queue->empty() && Fits(queue->front()->bytes_)) {
        Waiter* const waiter = queue->front();
        StopWaiting(waiter);
        Claim(waiter->bytes_);
        admitted.push_back(waiter);
      }
      if (!queue->empty()) break;
    }
    // Everybody who holds a claim waits for more, so nobody releases anything.
    // The first goes on if its claim fits, although more is held than claimed.
    // If it does not fit, this is a deadlock: the newest is refused and
    // releases its claim, which calls this function again.
    if (claimed_ == waiting_held_ && NewestHolder() != nullptr) {
      Waiter* const first =
          inside_.empty() ? outside_.front() : inside_.front();
      if (claimed_ + first->bytes_ <= budget_) {
        StopWaiting(first);
        Claim(first->bytes_);
        admitted.push_back(first);
      } else {
        refused = NewestHolder();
        StopWaiting(refused);
      }
    }
    left = Left();
  }
  if (!admitted.empty()) React(left);
  for (Waiter* const waiter : admitted) waiter->Admitted();
  if (refused != nullptr) refused->Refused();
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

std::int64_t Admission::held() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return held_;
}

std::optional<std::uint64_t> Admission::OnlyWaitingPeer() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::optional<std::uint64_t> peer;
  for (const std::list<Waiter*>* const queue : {&outside_, &inside_}) {
    for (const Waiter* const waiter : *queue) {
      if (peer && *peer != waiter->PeerId()) return std::nullopt;
      peer = waiter->PeerId();
    }
  }
  return peer;
}

std::size_t Admission::waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return outside_.size() + inside_.size();
}

}  // namespace posenc::server
