// A thread that serves calls. It takes events from its own completion queue,
// one after the other.
//
// A call belongs to one loop. All code of the call runs on the loop's thread,
// except Step::Advance(), which may run on another thread while the call's
// coroutine is suspended. So two threads never run code of the same call at the
// same time, and a call needs no lock.
//
// Call AddTo(builder), then the builder's BuildAndStart(), and then Start(). At
// the end, call the server's Shutdown() and Wait(), and then Stop().

#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "grpcpp/alarm.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/server_builder.h"
#include "server/base/steady_time.h"

namespace posenc::server {

class Loop {
 public:
  // The end of an operation of gRPC, or of another thread's work.
  class Event {
   public:
    // Called on the loop's thread. `ok` is true if the operation succeeded.
    virtual void Happen(bool ok) = 0;

   protected:
    ~Event() = default;
  };

  // An object that checks the clock at intervals: a call in progress.
  class Ticked {
   public:
    virtual void Tick(absl::Time now) = 0;

   protected:
    ~Ticked() = default;

   private:
    friend class Loop;
    std::size_t at_ = 0;  // index in ticked_
  };

  // Interval between two ticks.
  static constexpr absl::Duration kTick = absl::Milliseconds(20);

  // Returns the number of loops for this number of compute threads: half as
  // many, at least 1 and at most 16. Loops also read and write sockets.
  static int CountFor(int compute_threads);

  Loop() = default;
  ~Loop() { Stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void AddTo(grpc::ServerBuilder* builder);
  void Start();
  // Waits until every call and the thread have ended. May be called more than
  // once, and for a loop that was not started.
  void Stop();

  grpc::ServerCompletionQueue* queue() { return queue_.get(); }

  // Makes `event` happen soon on the loop's thread. Any thread may call Post()
  // while a call waits. When Post() returns, the event may already have
  // happened and been destroyed. If an allocation fails, the process ends,
  // because the call would otherwise wait for ever.
  void Post(Event* event) noexcept;

  // The functions below must be called on the loop's thread.
  void Add(Ticked* ticked);
  void Remove(Ticked* ticked);
  // Returns the time since the loop was last idle. A call that arrives now may
  // have waited in its socket for that time.
  absl::Duration Lag() const { return SteadyNow() - idle_at_; }
  // Begin() and End() count the coroutines that wait for a call or serve a
  // call. The loop ends after the last of these coroutines has ended.
  void Begin() { ++coroutines_; }
  void End() { --coroutines_; }

 private:
  // Makes the posted events happen.
  class Inbox final : public Event {
   public:
    explicit Inbox(Loop* loop) : loop_(loop) {}
    void Happen(bool ok) override;

   private:
    Loop* const loop_;
  };

  void Run();
  grpc::CompletionQueue::NextStatus Next(void** tag, bool* ok);
  void Poll();
  void TickIfDue();

  std::unique_ptr<grpc::ServerCompletionQueue> queue_, polled_;
  int ready_ = 0;  // events that were handled since the last tick
  std::thread thread_;
  int coroutines_ = 0;
  std::vector<Ticked*> ticked_;
  absl::Time next_tick_ = absl::InfinitePast();
  absl::Time next_poll_ = absl::InfinitePast();
  absl::Time idle_at_ = SteadyNow();

  std::mutex mutex_;
  std::vector<Event*> posted_;  // guarded by mutex_
  grpc::Alarm alarm_;           // set while posted_ is not empty
  Inbox inbox_{this};
};

}  // namespace posenc::server
