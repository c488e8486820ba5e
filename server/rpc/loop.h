// A thread that serves calls. It takes events from a completion queue of its
// own, one after the other.
//
// A call belongs to one loop. Everything that is done for it runs on the loop's
// thread, except what it computes on the pool, and its coroutine is suspended
// meanwhile. So no two threads are in a call at once, and a call has no lock.
//
// Order: AddTo(builder), BuildAndStart(), Start(); then the server's Shutdown()
// and Wait(), then Stop().

#pragma once

#include <list>
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
  // What may happen: an operation of gRPC's ends, or another thread's work.
  class Event {
   public:
    // Called on the loop's thread. ok: the operation succeeded.
    virtual void Happen(bool ok) = 0;

   protected:
    ~Event() = default;
  };

  // Who is to look at the steady clock now and then: a call in progress.
  class Ticked {
   public:
    virtual void Tick(absl::Time now) = 0;

   protected:
    ~Ticked() = default;
  };
  using Place = std::list<Ticked*>::iterator;

  // How often.
  static constexpr absl::Duration kTick = absl::Milliseconds(20);

  // How many loops a server has that computes on so many threads: half as many,
  // since they read and write sockets meanwhile.
  static int CountFor(int compute_threads);

  Loop() = default;
  ~Loop() { Stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void AddTo(grpc::ServerBuilder* builder);
  void Start();
  // Waits until every call has ended, and the thread. May be called again, and
  // if the loop was not started.
  void Stop();

  grpc::ServerCompletionQueue* queue() { return queue_.get(); }

  // Makes `event` happen soon on the loop's thread. Any thread may call it
  // while a call waits; the event may have happened, and be gone, when this
  // returns.
  void Post(Event* event);

  // The rest is for the loop's thread.
  Place Add(Ticked* ticked);
  void Remove(Place place) { ticked_.erase(place); }
  // The time since the loop last found nothing to do. A call that comes now may
  // have waited in its socket for so long.
  absl::Duration Lag() const { return SteadyNow() - idle_at_; }
  // Coroutines that await a call, or serve one. The loop ends after the last.
  void Begin() { ++coroutines_; }
  void End() { --coroutines_; }

 private:
  // Brings what was posted.
  class Inbox final : public Event {
   public:
    explicit Inbox(Loop* loop) : loop_(loop) {}
    void Happen(bool ok) override;

   private:
    Loop* const loop_;
  };

  void Run();
  grpc::CompletionQueue::NextStatus Next(void** tag, bool* ok);
  void TickIfDue();

  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::thread thread_;
  int coroutines_ = 0;
  std::list<Ticked*> ticked_;
  absl::Time next_tick_ = absl::InfinitePast();
  absl::Time idle_at_ = SteadyNow();

  std::mutex mutex_;
  std::vector<Event*> posted_;  // guarded by mutex_
  grpc::Alarm alarm_;           // set while posted_ is not empty
  Inbox inbox_{this};
};

}  // namespace posenc::server
