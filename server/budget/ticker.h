// A thread that does something every few milliseconds while there is a reason
// to, and sleeps otherwise, so that an idle server does not wake the machine.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace posenc::server {

// Safe for many threads.
class Ticker {
 public:
  // After Wake(), `tick` is called every `period`, on the ticker's own thread,
  // until it returns false.
  Ticker(std::chrono::microseconds period, std::function<bool()> tick);
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  // There is a reason. May be called with locks that `tick` takes, too. Costs
  // next to nothing if the ticker is awake.
  void Wake();

 private:
  void Run();

  const std::chrono::microseconds period_;
  const std::function<bool()> tick_;
  std::atomic<bool> awake_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace posenc::server
