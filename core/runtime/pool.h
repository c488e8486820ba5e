// Threads for computations, as many as there are cores to use.
//
// A thread that spreads a computation takes part in it and never waits for a
// worker that has not started: a sleeping worker needs 30 us to wake, and
// milliseconds on a busy machine, in which the caller does the work itself.

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
  // At least one thread.
  explicit ComputePool(int threads);
  // Runs what was submitted, then joins.
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()); }

  // Runs `job` on a worker, in the order of submission.
  void Submit(std::function<void()> job);

  // Calls chunk(i) once for each i in [0, chunks), on the calling thread and on
  // workers that have nothing else to do; returns when all have returned. The
  // calling thread may itself be a worker.
  void ForEach(std::int64_t chunks,
               absl::FunctionRef<void(std::int64_t)> chunk);

 private:
  struct Spread;

  void Work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable left_;  // a worker has left a Spread
  std::deque<std::function<void()>> jobs_;
  std::deque<Spread*> spreads_;  // with chunks that nobody has taken
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace posenc::core
