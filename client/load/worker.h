// One worker of the engine: a completion queue, the calls on it, what they
// came to.

#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "client/load/arrivals.h"
#include "client/load/engine.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"

namespace posenc::load {

// What the workers of a step share.
struct Step {
  StepOptions options;
  const std::vector<Case>* workload;
  Clock* clock;
  const std::atomic<bool>* stop;
  int workers;
  std::int64_t begin;                  // of the warm-up
  std::int64_t measured;               // of what counts
  std::int64_t end;                    // nothing is due from here on
  std::atomic<std::int64_t> calls{0};  // of those that count, where limited
  std::atomic<int> in_flight{0};
  std::atomic<std::int64_t> last_answer{0};

  bool Stopped() const { return stop && stop->load(std::memory_order_relaxed); }
  // Whether one more call, due then, is within the limit of calls.
  bool Claim(std::int64_t due);
};

class Worker {
 public:
  // `index` of step->workers; uses the channels of that number.
  Worker(Step* step, int index,
         const std::vector<std::shared_ptr<grpc::Channel>>& channels);
  ~Worker();

  void Start();
  bool done() const { return done_.load(std::memory_order_acquire); }

  // Adds what happened since the last time.
  void TakeInterval(Counts* counts);

  // After done().
  std::int64_t unsent() const { return unsent_; }
  const std::vector<Histogram>& cases() const { return cases_; }

 private:
  struct Call;

  void RunClosed();
  void RunOpen();
  void Dispatch();
  // Waits for answers until the queue is shut down.
  void Poll(bool closed);
  void Send(std::int64_t due);
  void Record(const Call& call, std::int64_t now);

  Step* const step_;
  const int index_;
  int slots_;  // of options.in_flight
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::size_t next_stub_ = 0;
  std::vector<std::size_t> next_request_;  // by case
  std::mt19937_64 random_;
  std::discrete_distribution<std::size_t> choose_;
  grpc::CompletionQueue queue_;
  std::int64_t unsent_ = 0;
  std::vector<Histogram> cases_;

  std::mutex slots_mutex_;
  std::condition_variable slot_freed_;
  int used_slots_ = 0;

  std::mutex counts_mutex_;
  Counts counts_;

  std::atomic<bool> done_{false};
  std::thread poller_;
  std::thread dispatcher_;
};

}  // namespace posenc::load
