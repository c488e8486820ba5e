#include "server/budget/deadlines.h"

#include <algorithm>
#include <utility>

namespace posenc::server {
namespace {

// The clock's range holds no more; nobody waits as long.
constexpr absl::Duration kLongest = absl::Hours(24 * 365);

std::chrono::nanoseconds Bounded(absl::Duration time) {
  return absl::ToChronoNanoseconds(std::min(time, kLongest));
}

}  // namespace

Deadlines::Deadlines(absl::Duration time)
    : time_(Bounded(time)), thread_([this] { Run(); }) {}

Deadlines::~Deadlines() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
}

void Deadlines::SetTime(absl::Duration time) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    time_ = Bounded(time);
  }
  stop_.notify_one();  // the thread may sleep for the earlier time
}

// The thread sleeps until the head's deadline, or for time_ if the queue is
// empty. It need be woken only if this call becomes the head of others, which
// happens after time_ has become less.
Deadlines::Entry Deadlines::Add(std::weak_ptr<Owner> call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + time_.load();
  auto place = queue_.end();
  while (place != queue_.begin() && std::prev(place)->deadline > deadline) {
    --place;
  }
  const bool sleeps_longer = place == queue_.begin() && !queue_.empty();
  if (spare_.empty()) spare_.emplace_back();
  const Entry entry = spare_.begin();
  *entry = {deadline, std::move(call)};
  queue_.splice(place, spare_, entry);
  if (sleeps_longer) stop_.notify_one();
  return entry;
}

absl::Duration Deadlines::time() const {
  return absl::FromChrono(time_.load());
}

void Deadlines::Remove(Entry entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  entry->call.reset();
  spare_.splice(spare_.begin(), entry->expired ? expired_ : queue_, entry);
  if (spare_.size() > kMostSpare) spare_.pop_back();
}

void Deadlines::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const std::chrono::nanoseconds left =
        queue_.empty()
            ? time_.load()
            : queue_.front().deadline - std::chrono::steady_clock::now();
    if (left.count() > 0) {
      stop_.wait_for(lock, left);
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
