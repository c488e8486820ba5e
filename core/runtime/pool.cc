#include "core/runtime/pool.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

namespace posenc::core {

// One ForEach() in progress. A Spread is on the caller's stack, so no worker
// may access it after the caller has returned. Three rules ensure this:
// - A worker enters only through spreads_, under mutex_, and adds itself to
//   `helpers` before it releases mutex_. Its last access to the Spread is to
//   subtract itself from `helpers`.
// - The caller removes the Spread from spreads_ when it finds no more tiles. No
//   worker enters after this.
// - The caller returns when `helpers` is 0. At this time all tiles are
//   computed, because a worker computes its tile before it leaves.
//
// The caller waits for workers that are computing, never for a worker that is
// asleep or busy elsewhere. A caller may itself be a worker (a job that spreads
// its work). This cannot cause a deadlock, because a caller waits only for
// tiles that other threads are computing, and no tile waits for anything.
struct ComputePool::Spread {
  absl::FunctionRef<bool(std::int64_t)> compute;
  const std::int64_t tiles;
  std::atomic<std::int64_t> taken{tiles};  // the result of ForEach()
  std::atomic<std::int64_t> next{0};       // the next tile to take
  std::atomic<int> helpers{0};  // workers inside; changed under mutex_

  // Computes tiles until none is left. Faster threads compute more tiles.
  void Run() {
    while (Take()) {
    }
  }
  bool Take() {
    const std::int64_t i = next.fetch_add(1);
    if (i >= tiles) return false;
    if (compute(i)) return true;
    // A tile failed: after this exchange, no thread takes another tile. Only
    // the first exchange returns the number of started tiles.
    const std::int64_t n = next.exchange(tiles);
    if (n < tiles) taken.store(n);
    return false;
  }
};

namespace {

using Clock = std::chrono::steady_clock;

// After its first tile, a computation is spread if one thread would need longer
// than this for the other tiles. A sleeping worker needs 30 us to wake up, or
// longer in a virtual machine, and data has to move from the first core's
// cache. For tensors of 1 to 4 MB in caches, spreading made the computation
// slower (Zen 3).
constexpr std::chrono::microseconds kWorthSpreading{200};

// A caller polls for at most this time until the workers leave; then the caller
// sleeps. Waking up a thread takes about as long as this. Each worker has less
// than a tile to do, unless it is interrupted.
constexpr std::chrono::microseconds kLooking{30};

void Pause() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

// Linux keeps niceness per thread. If setpriority fails, the thread keeps its
// niceness.
void BeNicer(int niceness) {
  if (niceness <= 0) return;
  const auto self = static_cast<id_t>(::syscall(SYS_gettid));
  ::setpriority(PRIO_PROCESS, self,
                ::getpriority(PRIO_PROCESS, self) + niceness);
}

}  // namespace

ComputePool::ComputePool(int threads, int niceness) {
  for (int i = 0; i < std::max(threads, 1); ++i) {
    workers_.emplace_back([this, niceness] {
      BeNicer(niceness);
      Work();
    });
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

std::int64_t ComputePool::ForEach(
    std::int64_t tiles, absl::FunctionRef<bool(std::int64_t)> compute) {
  Spread spread{compute, tiles};
  // The caller is one of the threads, so a single tile needs no worker and no
  // lock.
  const std::int64_t wanted = std::min<std::int64_t>(tiles, threads()) - 1;
  const Clock::time_point begin = Clock::now();
  if (wanted <= 0 || !spread.Take() ||
      (Clock::now() - begin) * (tiles - 1) < kWorthSpreading) {
    spread.Run();
    return spread.taken;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    spreads_.push_back(&spread);
  }
  for (std::int64_t i = 0; i < wanted; ++i) wake_.notify_one();
  spread.Run();
  std::unique_lock<std::mutex> lock(mutex_);
  // A worker that found no more tiles may have removed the Spread already.
  const auto listed = std::find(spreads_.begin(), spreads_.end(), &spread);
  if (listed != spreads_.end()) spreads_.erase(listed);
  lock.unlock();
  const auto left = [&spread] { return spread.helpers.load() == 0; };
  for (const Clock::time_point end = Clock::now() + kLooking;
       !left() && Clock::now() < end;) {
    Pause();
  }
  lock.lock();
  left_.wait(lock, left);
  return spread.taken;
}

void ComputePool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] {
      return stopping_ || !jobs_.empty() || !spreads_.empty();
    });
    // A waiting job comes before a Spread, because a Spread has at least its
    // caller's thread.
    if (!jobs_.empty()) {
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      job = nullptr;  // frees the job's data without the lock
      lock.lock();
    } else if (!spreads_.empty()) {
      Spread* const spread = spreads_.front();
      ++spread->helpers;
      lock.unlock();
      spread->Run();
      lock.lock();
      --spread->helpers;
      // All tiles are taken, so no other worker needs to enter. If `helpers` is
      // 0, the caller may destroy *spread after the lock is released.
      const auto listed = std::find(spreads_.begin(), spreads_.end(), spread);
      if (listed != spreads_.end()) spreads_.erase(listed);
      left_.notify_all();
    } else {
      return;  // stopping, and nothing is left
    }
  }
}

}  // namespace posenc::core
