#include "server/wire/admission.h"

#include <utility>
#include <vector>

namespace posenc::server {

Admission::Entry Admission::Enter(std::int64_t bytes, Waiter* waiter) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!queue_.empty() || claimed_ + bytes > budget_) {
      if (queue_.size() >= max_waiting_) return Entry::kFull;
      waiter->bytes_ = bytes;
      waiter->waiting_ = true;
      waiter->place_ = queue_.insert(queue_.end(), waiter);
      return Entry::kWaiting;
    }
    Claim(bytes);
  }
  React();
  return Entry::kAdmitted;
}

bool Admission::Leave(Waiter* waiter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!waiter->waiting_) return false;
  waiter->waiting_ = false;
  queue_.erase(waiter->place_);
  return true;
}

bool Admission::TryClaim(std::int64_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (claimed_ + bytes > budget_) return false;
    Claim(bytes);
  }
  React();
  return true;
}

void Admission::Release(std::int64_t bytes) {
  std::vector<Waiter*> admitted;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    claimed_ -= bytes;
    while (!queue_.empty() && claimed_ + queue_.front()->bytes_ <= budget_) {
      Waiter* const waiter = queue_.front();
      queue_.pop_front();
      waiter->waiting_ = false;
      Claim(waiter->bytes_);
      admitted.push_back(waiter);
    }
  }
  if (!admitted.empty()) React();
  for (Waiter* const waiter : admitted) waiter->Admitted();
}

void Admission::Claim(std::int64_t bytes) {
  claimed_ += bytes;
  claimed_since_ += bytes;
}

void Admission::React() const {
  if (react_) react_(budget_ - claimed());
}

std::int64_t Admission::TakeClaimedBytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(claimed_since_, claimed_);
}

std::int64_t Admission::claimed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return claimed_;
}

std::size_t Admission::waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queue_.size();
}

}  // namespace posenc::server
