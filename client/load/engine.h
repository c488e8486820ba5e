// Sends a workload at a server and measures it.
//
// A worker is a thread that waits for answers, and in an open loop another that
// sends calls when they are due. Latency counts from when a call was due (open
// loop) or sent (closed loop): a server that stalls delays every call that was
// due meanwhile, and all of them show it (no coordinated omission).

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/load/clock.h"
#include "client/load/histogram.h"
#include "client/load/workload.h"
#include "grpcpp/channel.h"

namespace posenc::load {

struct StepOptions {
  // Calls per second, open loop; 0: closed loop.
  double rate = 0;
  bool poisson = false;
  // Calls in flight: kept there in a closed loop, at most in an open one, where
  // a call beyond it is sent later but counts from when it was due.
  int in_flight = 16;
  // Calls due (open) or sent (closed) in the warm-up are not counted.
  absl::Duration warm_up = absl::Seconds(1);
  absl::Duration duration = absl::Seconds(10);
  // Instead of the duration, where above 0; the warm-up's calls come extra.
  std::int64_t calls = 0;
  absl::Duration timeout = absl::Seconds(10);
  // Share of the answers that are compared with the known ones.
  double verify = 0;
  std::uint64_t seed = 1;
};

// What happened in a stretch of time.
struct Counts {
  std::int64_t ok = 0;
  std::map<std::string, std::int64_t> errors;  // by the code's name
  std::int64_t bytes_sent = 0;                 // of calls that were answered
  std::int64_t bytes_received = 0;
  std::int64_t verified = 0;
  std::int64_t wrong = 0;
  std::string first_wrong;
  Histogram latency;  // of calls that were answered
  Histogram failed;   // of those that failed

  std::int64_t Failed() const;
  void Add(const Counts& other);
  void Clear();
};

struct Interval {
  double start_seconds = 0;  // after the warm-up
  double seconds = 0;
  int in_flight = 0;  // at its end
  Counts counts;
};

struct StepResult {
  double rate = 0;
  // From the end of the warm-up until the last answer, and no less than the
  // duration.
  double seconds = 0;
  Counts total;
  // Open loop: due in time, but never sent, as too many were in flight.
  std::int64_t unsent = 0;
  std::vector<Histogram> cases;  // latency, as the workload's cases

  // Failed, unsent and wrong answers, of all calls.
  double ErrorRate() const;
};

class Engine {
 public:
  // The workload and the clock must outlive the engine. At least one channel.
  Engine(const std::vector<Case>* workload,
         std::vector<std::shared_ptr<grpc::Channel>> channels, int workers,
         Clock* clock);

  // Blocks until every call has ended; on_interval is called about once a
  // second in this thread, first after the warm-up. Setting *stop ends early.
  StepResult Run(const StepOptions& options,
                 const std::function<void(const Interval&)>& on_interval,
                 const std::atomic<bool>* stop = nullptr);

  // Asks every request once, has check() approve the answer and keeps it for
  // StepOptions::verify.
  absl::Status Learn(
      std::vector<Case>* workload, absl::Duration timeout,
      const std::function<absl::Status(const Case&, const std::string& request,
                                       const std::string& answer)>& check);

 private:
  const std::vector<Case>* const workload_;
  const std::vector<std::shared_ptr<grpc::Channel>> channels_;
  const int workers_;
  Clock* const clock_;
};

// Connections of their own, all made before this returns. Errors: UNAVAILABLE
// where one is not made in time.
absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> ConnectAll(
    const std::string& target, int connections, bool retry,
    absl::Duration timeout);

// "UNAVAILABLE".
std::string CodeName(int grpc_code);

}  // namespace posenc::load
