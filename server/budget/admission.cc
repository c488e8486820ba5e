#include "server/budget/admission.h"

#include <utility>
#include <vector>

namespace posenc::server {

Admission::Entry Admission::Enter(std::int64_t bytes, Waiter* waiter) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!outside_.empty() || !inside_.empty() || !Fits(bytes)) {
      if (outside_.size() >= max_waiting_) return Entry::kFull;
      waiter->bytes_ = bytes;
      Wait(&outside_, waiter);
      return Entry::kWaiting;
    }
    Claim(bytes);
  }
  React();
  return Entry::kAdmitted;
}

Admission::Entry Admission::EnterMore(std::int64_t bytes, std::int64_t held,
                                      Waiter* waiter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool alone = claimed_ == waiting_held_ + held;
  if (!Fits(bytes) || (!inside_.empty() && !alone)) {
    if (alone || bytes > budget_ - held) return Entry::kFull;
    waiter->bytes_ = bytes;
    waiter->held_ = held;
    waiting_held_ += held;
    Wait(&inside_, waiter);
    return Entry::kWaiting;
  }
  Claim(bytes);
  return Entry::kAdmitted;
}

void Admission::Wait(std::list<Waiter*>* queue, Waiter* waiter) {
  waiter->queue_ = queue;
  waiter->position_ = queue->insert(queue->end(), waiter);
}

void Admission::StopWaiting(Waiter* waiter) {
  if (waiter->queue_ == &inside_) waiting_held_ -= waiter->held_;
  waiter->queue_->erase(waiter->position_);
  waiter->queue_ = nullptr;
}

bool Admission::Leave(Waiter* waiter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (waiter->queue_ == nullptr) return false;
  StopWaiting(waiter);
  return true;
}

bool Admission::TryClaim(std::int64_t bytes, Waiter* waiter) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!Fits(bytes)) return false;
    Claim(bytes);
    if (waiter != nullptr && waiter->queue_ == &inside_) {
      waiter->held_ += bytes;
      waiting_held_ += bytes;
    }
  }
  React();
  return true;
}

void Admission::Release(std::int64_t bytes) {
  std::vector<Waiter*> admitted;
  Waiter* refused = nullptr;
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
    // Deadlock: everybody who holds a claim waits for more. The newest is
    // refused; it releases its claim, which calls this function again.
    if (!inside_.empty() && claimed_ == waiting_held_) {
      refused = inside_.back();
      StopWaiting(refused);
    }
  }
  if (!admitted.empty()) React();
  for (Waiter* const waiter : admitted) waiter->Admitted();
  if (refused != nullptr) refused->Refused();
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
  return outside_.size() + inside_.size();
}

}  // namespace posenc::server
