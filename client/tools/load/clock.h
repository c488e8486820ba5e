// An interface for the time, so that tests can run an engine with another
// clock, without sleeping.

#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace posenc::load {

// Counts nanoseconds from an arbitrary start and never goes back. Any number of
// threads can use a clock.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t Now() const = 0;
  virtual void SleepUntil(std::int64_t nanos) = 0;
};

class SteadyClock : public Clock {
 public:
  std::int64_t Now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  void SleepUntil(std::int64_t nanos) override {
    std::this_thread::sleep_until(
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(nanos)));
  }
};

}  // namespace posenc::load
