#include "server/process/threads.h"

#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/call/loop.h"

namespace posenc::server {
namespace {

// Upper bound on the threads in addition to the compute threads and the loops'
// threads. On two processors, 11 of these threads were counted (five of them
// gRPC's), and two more with the admin port.
constexpr int kOthers = 16;

}  // namespace

int ThreadsOf(int compute_threads) {
  return compute_threads + Loop::CountFor(compute_threads) + kOthers;
}

absl::Status CheckThreads(int count) {
  absl::Status status;
  std::mutex mutex;
  std::vector<std::thread> threads;
  {
    // Each started thread waits for this lock until all have started.
    const std::lock_guard<std::mutex> lock(mutex);
    threads.reserve(static_cast<std::size_t>(count));
    try {
      for (int i = 0; i < count; ++i) {
        threads.emplace_back(
            [&mutex] { const std::lock_guard<std::mutex> done(mutex); });
      }
    } catch (const std::system_error& error) {
      status = absl::ResourceExhaustedError(absl::StrCat(
          "could start only ", threads.size(), " of ", count,
          " threads: ", error.code().message(),
          "; raise the limit of processes (ulimit -u, pids.max), or lower "
          "--threads"));
    }
  }
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace posenc::server
