#include "server/budget/ticker.h"

#include <utility>

namespace posenc::server {

Ticker::Ticker(std::chrono::microseconds period, std::function<bool()> tick)
    : period_(period), tick_(std::move(tick)), thread_([this] { Run(); }) {}

Ticker::~Ticker() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Ticker::Wake() {
  if (awake_.exchange(true)) return;
  // The thread either has not looked at the flag yet, or waits.
  { const std::lock_guard<std::mutex> lock(mutex_); }
  changed_.notify_one();
}

void Ticker::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    if (!awake_.load()) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_for(lock, period_);
    if (stopping_) return;
    // A Wake() during the tick must not be lost: it sets the flag again.
    awake_.store(false);
    lock.unlock();
    const bool again = tick_();
    lock.lock();
    if (again) awake_.store(true);
  }
}

}  // namespace posenc::server
