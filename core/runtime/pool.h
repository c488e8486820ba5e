// Threads for computations.
//
// A thread that spreads a computation takes part in the computation, and never
// waits for a worker that has not started. A sleeping worker needs 30 us to
// wake up, or milliseconds on a busy machine. During this time the caller does
// the work itself.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace posenc::core {

class ComputePool {
 public:
  // Starts `threads` threads, or one if `threads` is less than 1. `niceness` is
  // added to the workers' niceness, as by nice(): on a busy processor, the
  // other threads of the process then get more time.
  explicit ComputePool(int threads, int niceness = 0);
  // Runs the submitted jobs, then joins the threads.
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()); }

  // Runs `job` on a worker. Jobs start in the order of submission.
  void Submit(std::function<void()> job);

  // Calls compute(i) once for each tile i = 0, 1, ... below `tiles`, until a
  // call returns false. The calls run on the calling thread, and also on idle
  // workers if one thread would take long. The calling thread may itself be a
  // worker. Waits for all calls, and returns their number n: the tiles [0, n)
  // were computed.
  std::int64_t ForEach(std::int64_t tiles,
                       absl::FunctionRef<bool(std::int64_t)> compute);

 private:
  struct Spread;

  void Work();
  std::mutex mutex_;
  std::condition_variable wake_;  // workers wait for a job or a Spread
  std::condition_variable left_;  // callers wait for workers to leave a Spread
  std::deque<std::function<void()>> jobs_;
  // Computations that may still have tiles to take. The callers of ForEach()
  // own these computations.
  std::deque<Spread*> spreads_;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace posenc::core
