#include "core/runtime/pool.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace posenc::core {

struct ComputePool::Spread {
  absl::FunctionRef<void(std::int64_t)> chunk;
  const std::int64_t chunks;
  std::atomic<std::int64_t> next{0};
  int helpers = 0;  // workers inside; guarded by mutex_

  void Run() {
    for (std::int64_t i; (i = next.fetch_add(1)) < chunks;) chunk(i);
  }
};

ComputePool::ComputePool(int threads) {
  for (int i = 0; i < std::max(threads, 1); ++i) {
    workers_.emplace_back([this] { Work(); });
  }
}

ComputePool::~ComputePool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ComputePool::Submit(std::function<void()> job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void ComputePool::ForEach(std::int64_t chunks,
                          absl::FunctionRef<void(std::int64_t)> chunk) {
  Spread spread{chunk, chunks};
  const std::int64_t wanted = std::min<std::int64_t>(chunks, threads()) - 1;
  if (wanted > 0) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      spreads_.push_back(&spread);
    }
    for (std::int64_t i = 0; i < wanted; ++i) wake_.notify_one();
  }
  spread.Run();
  if (wanted <= 0) return;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto listed = std::find(spreads_.begin(), spreads_.end(), &spread);
  if (listed != spreads_.end()) spreads_.erase(listed);
  left_.wait(lock, [&spread] { return spread.helpers == 0; });
}

void ComputePool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] {
      return stopping_ || !jobs_.empty() || !spreads_.empty();
    });
    // A call that waits goes before one that is being worked on.
    if (!jobs_.empty()) {
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    } else if (!spreads_.empty()) {
      Spread* const spread = spreads_.front();
      ++spread->helpers;
      lock.unlock();
      spread->Run();
      lock.lock();
      --spread->helpers;
      // All chunks are taken: nobody else need come.
      const auto listed = std::find(spreads_.begin(), spreads_.end(), spread);
      if (listed != spreads_.end()) spreads_.erase(listed);
      left_.notify_all();
    } else {
      return;  // stopping, and nothing is left
    }
  }
}

}  // namespace posenc::core
