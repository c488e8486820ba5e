#include "server/budget/deadlines.h"

#include <utility>

#include "absl/time/clock.h"

namespace posenc::server {

Deadlines::Deadlines(absl::Duration time)
    : time_(time), thread_([this] { Run(); }) {}

Deadlines::~Deadlines() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
}

// The thread need not be woken: it sleeps until the head's deadline, or for
// time_ if the queue is empty, and neither is later than this call's deadline.
Deadlines::Entry Deadlines::Add(std::weak_ptr<Owner> call) {
  Item item = {absl::Now() + time_, std::move(call)};
  const std::lock_guard<std::mutex> lock(mutex_);
  return queue_.insert(queue_.end(), std::move(item));
}

void Deadlines::Remove(Entry entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  (entry->expired ? expired_ : queue_).erase(entry);
}

void Deadlines::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const absl::Duration left =
        queue_.empty() ? time_ : queue_.front().deadline - absl::Now();
    if (left > absl::ZeroDuration()) {
      stop_.wait_for(lock, absl::ToChronoNanoseconds(left));
      continue;
    }
    // The entry moves before its call is told: the call may remove it at once.
    const Entry entry = queue_.begin();
    entry->expired = true;
    std::shared_ptr<Owner> call = entry->call.lock();
    expired_.splice(expired_.end(), queue_, entry);
    lock.unlock();
    if (call != nullptr) call->Expire();
    // This may be the last reference, and a call that ends lets others go on:
    // never under this lock.
    call.reset();
    lock.lock();
  }
}

}  // namespace posenc::server
