// Ends calls whose client set no deadline.
//
// All get the same time, so that those who wait form a queue: entering and
// leaving it costs a call some tens of nanoseconds, a timer of its own would
// cost microseconds.

#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace posenc::server {

class Deadlines {
 public:
  class Call {
   public:
    virtual ~Call() = default;
    // On the queue's own thread; soon.
    virtual void Expire() = 0;
  };

  struct Item {
    absl::Time deadline;
    std::weak_ptr<Call> call;
    bool expired = false;
  };
  using Entry = std::list<Item>::iterator;

  explicit Deadlines(absl::Duration time);
  ~Deadlines();
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

  Entry Add(std::weak_ptr<Call> call);
  // Once for each entry.
  void Remove(Entry entry);

 private:
  void Run();

  const absl::Duration time_;
  std::mutex mutex_;
  std::condition_variable stop_;
  std::list<Item> queue_;    // in the order of their deadlines
  std::list<Item> expired_;  // until their calls remove them
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace posenc::server
