// Ends calls whose client set no deadline, after a time that all of them share.
//
// Because the time is the same for all, the calls' deadlines pass in the order
// in which the calls came (or nearly, if the time was changed): they form a
// queue, and one thread sleeps until the deadline at its head. Entering and
// leaving the queue costs a call some tens of nanoseconds; a timer of its own
// would cost microseconds.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace posenc::server {

// Safe for many threads.
class Deadlines {
 public:
  // A call that has an entry in the queue.
  class Owner {
   public:
    virtual ~Owner() = default;
    // The deadline has passed. Called on the queue's own thread, so it must
    // return soon.
    virtual void Expire() = 0;
  };

  struct Item {
    std::chrono::steady_clock::time_point deadline;
    std::weak_ptr<Owner> call;
    bool expired = false;
  };
  using Entry = std::list<Item>::iterator;

  explicit Deadlines(absl::Duration time);
  // Another time for the calls that come from now on.
  void SetTime(absl::Duration time);
  absl::Duration time() const;
  ~Deadlines();
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

  Entry Add(std::weak_ptr<Owner> call);
  // To be called once for each entry, expired or not.
  void Remove(Entry entry);

 private:
  void Run();

  mutable std::mutex mutex_;
  std::atomic<std::chrono::nanoseconds> time_;  // changed under the lock
  std::condition_variable stop_;
  // An item is in the one list or the other until its call removes it.
  std::list<Item> queue_;  // in the order of deadlines
  std::list<Item> expired_;
  // Nodes for the next ones; as many as Transfers keeps.
  static constexpr std::size_t kMostSpare = 256;
  std::list<Item> spare_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace posenc::server
