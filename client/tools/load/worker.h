// A worker of the engine: a gRPC completion queue, its calls, and the counts of
// their results.
//
//   closed loop   poller_      sends the first calls, then one per answer
//   open loop     dispatcher_  sleeps until a call is due, takes a slot, sends
//                 poller_      takes answers, frees slots
//
// A slot is the right to have one call in flight. In a closed loop only the
// poller uses slots. In an open loop slots_mutex_ guards the slots. If all
// slots are taken, the dispatcher waits and sends the call late, but latency
// and deadline of the call still count from its due time.
//
// The backlog has calls that are due and could not be sent, because all slots
// are taken or this machine is too slow. The newest call is sent first, and
// calls after their deadline are dropped. If the oldest call were sent first,
// every later call would be sent too late to be answered before its deadline,
// even by a fast server. counts_mutex_ guards the counts, which the engine
// takes once a second. The thread that sends owns random_, choose_,
// next_request_ and the stubs.

#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "client/tools/load/arrivals.h"
#include "client/tools/load/engine.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"

namespace posenc::load {

// The state that a step's workers share. Times are the clock's nanoseconds.
struct Step {
  StepOptions options;
  const std::vector<Case>* workload;
  Clock* clock;
  const std::atomic<bool>* stop;
  int workers;
  std::int64_t begin;     // start of the warm-up
  std::int64_t measured;  // end of the warm-up: calls from here on count
  std::int64_t end;       // calls from here on do not count
  // Counted calls that were claimed, if their number is limited.
  std::atomic<std::int64_t> calls{0};
  std::atomic<int> in_flight{0};
  std::atomic<int> counted{0};  // calls in flight that Counts() includes
  std::atomic<std::int64_t> last_answer{0};

  // Returns true if `due` is not in the warm-up or cool-down.
  bool Counts(std::int64_t due) const { return due >= measured && due < end; }
  bool Stopped() const { return stop && stop->load(std::memory_order_relaxed); }
  // Counts a call that is due at `due` against the limit options.calls. Returns
  // false if the limit is reached; in this case the call must not be sent.
  // Calls of the warm-up are not limited.
  bool Claim(std::int64_t due);
};

class Worker {
 public:
  // Makes the worker with the number `index`; `step` has step->workers workers,
  // numbered from 0. Workers share the channels: this worker uses the channels
  // index, index + step->workers, index + 2 * step->workers, ...
  Worker(Step* step, int index,
         const std::vector<std::shared_ptr<grpc::Channel>>& channels);
  ~Worker();

  // Starts the threads, which end by themselves after the step.
  void Start();
  // Returns true after every call has ended and been recorded.
  bool done() const { return done_.load(std::memory_order_acquire); }

  // Moves the counts since the last call of this function to `counts`. Can be
  // called from any thread.
  void TakeInterval(Counts* counts);

  // Adds this worker's results, except the counts that TakeInterval() returns.
  // Call it after done() is true.
  void AddTo(StepResult* result) const;

 private:
  struct Call;

  // True if no call is in flight.
  bool AllFree() const { return free_slots_.size() == slots_; }
  void RunClosed();
  void Dispatch();
  // Waits until a slot is free. The slot stays free, because only the
  // dispatcher takes slots. Returns true if the dispatcher had to wait.
  bool WaitForSlot();
  // Counts a call that leaves the backlog. The call counts as limited if it was
  // due by `held_until`, or else as late if it was due more than kTooLate ago.
  // Also increments *reason, if it is not null.
  void Leave(std::int64_t due, std::int64_t now, std::int64_t held_until,
             std::int64_t* reason);
  // Takes answers until the queue is shut down.
  void Poll(bool closed);
  // Starts a call of a case, chosen by weight.
  void Send(std::int64_t due);
  // Counts an ended call, unless it was due in the warm-up or the cool-down.
  void Record(const Call& call, std::int64_t now);

  Step* const step_;
  const int index_;
  const std::size_t slots_;  // this worker's share of options.in_flight
  // Numbers of free slots. This worker has every step->workers-th slot. Guarded
  // by slots_mutex_.
  std::vector<int> free_slots_;
  // Slots in which a call reached its deadline. The server may still write to
  // the bytes of such a slot in shared memory, so later results in the slot are
  // not verified. Guarded by slots_mutex_.
  std::set<int> abandoned_slots_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::size_t next_stub_ = 0;
  std::vector<std::size_t> next_request_;  // by case: variants are sent in turn
  std::mt19937_64 random_;
  std::discrete_distribution<std::size_t> choose_;
  grpc::CompletionQueue queue_;
  StepResult part_;
  // The share of a core that each of the two threads used.
  double dispatching_share_ = 0, polling_share_ = 0;

  std::mutex slots_mutex_;
  std::condition_variable slot_freed_;

  std::mutex counts_mutex_;
  Counts counts_;

  std::atomic<bool> done_{false};
  std::thread poller_;
  std::thread dispatcher_;
};

}  // namespace posenc::load
