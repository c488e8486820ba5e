#include "core/runtime/pool.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

namespace posenc::core {

// One ForEach() on its way. It lies on the caller's stack, so no worker may
// touch it after the caller has returned. Three rules see to that:
//
//   - A worker enters only by way of spreads_, under mutex_, and counts itself
//     in `helpers` before it releases mutex_. Counting itself out again is the
//     last that it does to the Spread.
//   - The caller takes the Spread off spreads_ once it finds no more tiles.
//     From then on nobody enters.
//   - The caller returns when `helpers` is 0. That also means that all tiles
//     are done, not only taken: who takes a tile computes it before it leaves.
//
// The caller waits for workers that are computing, never for one that has yet
// to wake up or is busy elsewhere. A caller that is itself a worker (a job that
// spreads its work) cannot deadlock therefore: it waits for tiles that other
// threads are computing at that moment, and tiles wait for nobody.
struct ComputePool::Spread {
  absl::FunctionRef<void(std::int64_t)> compute;
  const std::int64_t tiles;
  std::atomic<std::int64_t> next{0};  // the tile to be taken next
  std::atomic<int> helpers{0};        // workers inside; changed under mutex_

  // Takes tiles until there are none. Faster threads take more.
  void Run() {
    for (std::int64_t i; (i = next.fetch_add(1)) < tiles;) compute(i);
  }
};

namespace {

using Clock = std::chrono::steady_clock;

// What is left of a computation after its first tile is spread if one thread
// would take longer for it. A sleeping worker needs 30 us to wake up, in a
// virtual machine more, and what the first core has in its cache has to come
// over. Float32 in place, two threads to one, 1 and 4 MB that are in caches,
// beside a busy core: 0.55 and 0.80 if all is spread (Zen 3).
constexpr std::chrono::microseconds kWorthSpreading{200};

// How long a caller looks for workers to leave before it sleeps, since waking
// up takes about as long. They have less than a tile to do, unless they are
// interrupted.
constexpr std::chrono::microseconds kLooking{30};

void Pause() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

// Linux counts niceness by thread. If it does not let us, the thread goes on as
// it is.
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

void ComputePool::Submit(std::function<void()> job, bool urgent) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    (urgent ? urgent_jobs_ : jobs_).push_back(std::move(job));
  }
  wake_.notify_one();
}

std::function<void()> ComputePool::TakeJob() {
  std::function<void()> job;
  std::deque<std::function<void()>>& jobs =
      urgent_jobs_.empty() ? jobs_ : urgent_jobs_;
  if (!jobs.empty()) {
    job = std::move(jobs.front());
    jobs.pop_front();
  }
  return job;
}

void ComputePool::ForEach(std::int64_t tiles,
                          absl::FunctionRef<void(std::int64_t)> compute) {
  Spread spread{compute, tiles};
  // The caller itself counts as one; one tile needs no help at all, and no
  // lock.
  const std::int64_t wanted = std::min<std::int64_t>(tiles, threads()) - 1;
  if (wanted <= 0) return spread.Run();
  const Clock::time_point begin = Clock::now();
  compute(spread.next.fetch_add(1));
  if ((Clock::now() - begin) * (tiles - 1) < kWorthSpreading) {
    return spread.Run();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    spreads_.push_back(&spread);
  }
  for (std::int64_t i = 0; i < wanted; ++i) wake_.notify_one();
  spread.Run();
  std::unique_lock<std::mutex> lock(mutex_);
  // A worker that found no more tiles may have taken it off already.
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
}

void ComputePool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] {
      return stopping_ || !urgent_jobs_.empty() || !jobs_.empty() ||
             !spreads_.empty();
    });
    // A call that waits goes before one that is being worked on: the latter has
    // at least its own thread.
    if (std::function<void()> job = TakeJob()) {
      lock.unlock();
      job();
      job = nullptr;  // what it holds is freed without the lock
      lock.lock();
    } else if (!spreads_.empty()) {
      Spread* const spread = spreads_.front();
      ++spread->helpers;
      lock.unlock();
      spread->Run();
      lock.lock();
      --spread->helpers;
      // All tiles are taken, so nobody else need enter. After the lock is
      // released with helpers at 0, *spread may be gone.
      const auto listed = std::find(spreads_.begin(), spreads_.end(), spread);
      if (listed != spreads_.end()) spreads_.erase(listed);
      left_.notify_all();
    } else {
      return;  // stopping, and nothing is left
    }
  }
}

}  // namespace posenc::core
