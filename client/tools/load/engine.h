// Sends a workload to a server and measures the answers.
//
// In a closed loop a fixed number of calls is in flight, and an answer triggers
// the next call. A closed loop finds the throughput. But if the server stalls
// for a second, nothing is sent in this time, and the stall appears only as one
// slow call in each slot. The calls that users would have made in this time are
// missing from the percentiles (coordinated omission, as Gil Tene calls it).
//
// In an open loop calls are due at fixed times (arrivals.h), and latency counts
// from the due time, not from the sending. A stall delays every call that
// becomes due during the stall, and the latencies of all these calls show it.
//
// Each worker has a thread that waits for answers. In an open loop a worker has
// a second thread, which sends. Workers share a Step (worker.h) and keep their
// own counts, which the thread of Run() collects once a second.

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
#include "client/tools/load/clock.h"
#include "client/tools/load/histogram.h"
#include "client/tools/load/workload.h"
#include "grpcpp/channel.h"
#include "posenc/client.h"

namespace posenc::load {

// A step is one measurement: one rate, or one number of calls in flight.
struct StepOptions {
  // Calls per second in an open loop; 0: closed loop.
  double rate = 0;
  bool poisson = false;
  // Calls in flight: the constant number of a closed loop, the upper bound of
  // an open loop. A call beyond the bound is sent later, but its latency counts
  // from its due time, and StepResult::limited counts it.
  int in_flight = 16;
  // The warm-up prepares connections, caches and the server's memory. Calls
  // that are due (open) or sent (closed) in the warm-up are not counted.
  absl::Duration warm_up = absl::Seconds(1);
  absl::Duration duration = absl::Seconds(10);
  // If above 0, the step ends after this number of calls instead of after the
  // duration. Calls of the warm-up are not counted.
  std::int64_t calls = 0;
  // A call's deadline, from its due time (open) or its sending (closed). A call
  // of an open loop that could not be sent before its deadline is not sent.
  absl::Duration timeout = absl::Seconds(10);
  // Open loop: continues to offer the rate after the end, until all counted
  // calls have ended. The additional calls are not counted. With the additional
  // calls, the last counted calls are answered under the same load as the other
  // counted calls, and no counted call is left unsent. Must not be set together
  // with `calls`.
  bool cool_down = false;
  // Share, in [0, 1], of the answers that are compared with the known answers.
  double verify = 0;
  std::uint64_t seed = 1;
};

// The results of the calls in a period of time. Not thread-safe.
struct Counts {
  std::int64_t ok = 0;
  std::int64_t good = 0;  // answered OK before their deadline
  std::map<std::string, std::int64_t> errors;  // by the code's name
  std::int64_t bytes_sent = 0;                 // of calls that were answered
  std::int64_t bytes_received = 0;
  std::int64_t verified = 0;
  std::int64_t wrong = 0;
  std::string first_wrong;
  // Failures are counted separately, because a fast error must not improve the
  // latency of answers.
  Histogram latency;  // of calls that were answered
  Histogram failed;   // of calls that failed
  // Failed calls that the server refused: RESOURCE_EXHAUSTED and UNAVAILABLE.
  Histogram refused;

  std::int64_t Failed() const;
  void Add(const Counts& other);
};

// The results of about one second of a step.
struct Interval {
  double start_seconds = 0;  // since the end of the warm-up
  double seconds = 0;
  int in_flight = 0;  // at the end of the interval
  Counts counts;
};

struct StepResult {
  double rate = 0;
  // The time from the end of the warm-up until the last answer, and at least
  // the duration. Rates are numbers of calls divided by this time, so that late
  // answers lower the rate.
  double seconds = 0;
  Counts total;
  // Open loop: calls that were due before the end but not sent, because too
  // many calls were in flight until the end.
  std::int64_t unsent = 0;
  // Open loop: calls that were not sent because their deadline had passed.
  std::int64_t dropped = 0;
  // Open loop: calls that were due while no slot was free. If there are such
  // calls, the limit, not the rate, determined the load.
  std::int64_t limited = 0;
  // Open loop: calls that were sent more than 10 ms after they were due, or
  // were dropped, although a slot was free. This machine was too slow for these
  // calls.
  std::int64_t sent_late = 0;
  // Share of a core that the busiest of the engine's threads used.
  double busiest_thread = 0;
  int in_flight_limit = 0;  // StepOptions::in_flight
  // Open loop: time from a call's due time to its sending. If the delay is long
  // and no call was limited, this machine is too slow for the rate.
  Histogram send_delay;
  std::vector<Histogram> cases;  // latency, by index of the workload's cases

  // Calls that failed: answered with an error, or dropped.
  std::int64_t Failed() const { return total.Failed() + dropped; }
  // Returns the number of calls that were due (open) or sent (closed).
  std::int64_t Calls() const { return total.ok + Failed() + unsent; }
  // Share of failed, unsent and wrongly answered calls in all calls.
  double ErrorRate() const;
  // Calls a second that were answered within their deadline. In an open loop
  // this is the offered rate times the share of good calls, so that the time
  // between the last due call and the last answer does not matter.
  double GoodPerSecond() const;
  // True if this machine may have caused calls to fail: more than one call in a
  // hundred was sent late, or a thread of the engine was too busy. The numbers
  // of such a step do not describe the server.
  bool TesterLimited() const;
};

class Engine {
 public:
  // The workload and the clock must outlive the engine. `channels` must not be
  // empty; there are at most as many workers as channels.
  Engine(const std::vector<Case>* workload,
         std::vector<std::shared_ptr<grpc::Channel>> channels, int workers,
         Clock* clock);

  // Runs a step, until every call has ended. Calls `on_interval` about once a
  // second in this thread, for the first time after the warm-up. Setting *stop
  // ends the step early, but Run() still waits for the calls in flight.
  StepResult Run(const StepOptions& options,
                 const std::function<void(const Interval&)>& on_interval,
                 const std::atomic<bool>* stop = nullptr);

  // Sends a request once, and returns the answer's bytes.
  absl::StatusOr<std::string> Ask(const Case& one, const Request& request,
                                  absl::Duration timeout);

  // Sends every request once, checks the answer with check(), and stores the
  // answer in the workload. With StepOptions::verify, later answers are
  // compared with this answer bit for bit, because a server answers equal
  // requests with equal bytes.
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

// Makes channels with one connection each, and connects them. By default gRPC
// lets channels to one target share a connection. Returns UNAVAILABLE if a
// channel is not connected within `timeout`. If `retry` is true, calls are
// retried as in the published service config. `security` has the channels' TLS
// and token.
absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> ConnectAll(
    const std::string& target, int connections, bool retry,
    absl::Duration timeout, const ClientOptions& security = {});

}  // namespace posenc::load
