#include "client/tools/load/engine.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/connection/channels.h"
#include "client/cpp/connection/credentials.h"
#include "client/tools/load/worker.h"
#include "core/base/status_macros.h"
#include "posenc/wire/metadata.h"

namespace posenc::load {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
// Interval at which Run() checks whether workers are done: short compared with
// a step, long compared with the check.
constexpr std::chrono::milliseconds kPoll(10);

}  // namespace

std::int64_t Counts::Failed() const {
  std::int64_t failed = 0;
  for (const auto& [code, count] : errors) failed += count;
  return failed;
}

void Counts::Add(const Counts& other) {
  ok += other.ok;
  good += other.good;
  for (const auto& [code, count] : other.errors) errors[code] += count;
  bytes_sent += other.bytes_sent;
  bytes_received += other.bytes_received;
  verified += other.verified;
  if (wrong == 0) first_wrong = other.first_wrong;
  wrong += other.wrong;
  latency.Add(other.latency);
  failed.Add(other.failed);
  refused.Add(other.refused);
}

double StepResult::ErrorRate() const {
  const std::int64_t bad = Failed() + unsent + total.wrong;
  return Calls() ? static_cast<double>(bad) / static_cast<double>(Calls()) : 0;
}

double StepResult::GoodPerSecond() const {
  const auto good = static_cast<double>(total.good);
  if (rate > 0) {
    return Calls() ? rate * good / static_cast<double>(Calls()) : 0;
  }
  return seconds > 0 ? good / seconds : 0;
}

bool StepResult::TesterLimited() const {
  // A thread of the engine sleeps until a call is due or an answer comes. A
  // thread that uses more than this share of a core is too busy for the load.
  constexpr double kNoTimeLeft = 0.9;
  if (total.good >= Calls()) return false;
  return 100 * sent_late > Calls() || busiest_thread > kNoTimeLeft;
}

Engine::Engine(const std::vector<Case>* workload,
               std::vector<std::shared_ptr<grpc::Channel>> channels,
               int workers, Clock* clock)
    : workload_(workload),
      channels_(std::move(channels)),
      workers_(std::clamp(workers, 1, static_cast<int>(channels_.size()))),
      clock_(clock) {}

StepResult Engine::Run(const StepOptions& options,
                       const std::function<void(const Interval&)>& on_interval,
                       const std::atomic<bool>* stop) {
  Step step;
  step.options = options;
  step.workload = workload_;
  step.clock = clock_;
  step.stop = stop;
  // A worker needs at least one slot to make a call.
  step.workers = std::min(workers_, options.in_flight);
  step.begin = clock_->Now();
  step.measured = step.begin + absl::ToInt64Nanoseconds(options.warm_up);
  step.end = options.calls > 0
                 ? std::numeric_limits<std::int64_t>::max()
                 : step.measured + absl::ToInt64Nanoseconds(options.duration);
  std::vector<std::unique_ptr<Worker>> workers;
  workers.reserve(step.workers);
  for (int i = 0; i < step.workers; ++i) {
    workers.push_back(std::make_unique<Worker>(&step, i, channels_));
  }
  for (const auto& worker : workers) worker->Start();

  StepResult result;
  result.rate = options.rate;
  result.in_flight_limit = options.in_flight;
  Interval interval;
  std::int64_t from = step.measured;
  for (bool done = false; !done;) {
    std::this_thread::sleep_for(kPoll);
    // `done` is set before the counts are taken, so that the last interval has
    // all calls of a worker that is done.
    done = std::all_of(workers.begin(), workers.end(),
                       [](const auto& worker) { return worker->done(); });
    const std::int64_t now = clock_->Now();
    if (!done && now < from + kSecond) continue;
    interval.counts = Counts();
    for (const auto& worker : workers) worker->TakeInterval(&interval.counts);
    interval.start_seconds = static_cast<double>(from - step.measured) / 1e9;
    interval.seconds =
        static_cast<double>(std::max<std::int64_t>(now - from, 0)) / 1e9;
    interval.in_flight = step.in_flight.load(std::memory_order_relaxed);
    from = now;
    result.total.Add(interval.counts);
    if (on_interval) on_interval(interval);
  }
  const std::int64_t least =
      options.calls > 0 || step.Stopped() ? step.measured : step.end;
  result.seconds =
      static_cast<double>(std::max(least, step.last_answer.load()) -
                          step.measured) /
      1e9;
  result.cases.resize(workload_->size());
  for (const auto& worker : workers) worker->AddTo(&result);
  return result;
}

absl::StatusOr<std::string> Engine::Ask(const Case& one, const Request& request,
                                        absl::Duration timeout) {
  grpc::GenericStub stub(channels_[0]);
  grpc::ClientContext context;
  context.AddMetadata(wire::kMessageBytes, absl::StrCat(request.bytes));
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  grpc::CompletionQueue queue;
  grpc::ByteBuffer response;
  grpc::Status status;
  const auto reader =
      stub.PrepareUnaryCall(&context, one.method, request.message, &queue);
  reader->StartCall();
  reader->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  if (status.ok()) return BytesOf(response);
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(one.name, ": ", status.error_message()));
}

absl::Status Engine::Learn(
    std::vector<Case>* workload, absl::Duration timeout,
    const std::function<absl::Status(const Case&, const std::string&,
                                     const std::string&)>& check) {
  for (Case& one : *workload) {
    for (Request& request : one.requests) {
      ASSIGN_OR_RETURN(request.answer, Ask(one, request, timeout));
      RETURN_IF_ERROR(check(one, BytesOf(request.message), request.answer));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> ConnectAll(
    const std::string& target, int connections, bool retry,
    absl::Duration timeout, const ClientOptions& security_options) {
  ClientOptions of_target = security_options;
  of_target.target = target;
  of_target.max_message_bytes = std::numeric_limits<int>::max();
  ASSIGN_OR_RETURN(const auto security, ChannelSecurity::Of(of_target));
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < connections; ++i) {
    // Channels are made like the client library's channels, so that the
    // measurement is valid for users of the library.
    channels.push_back(security.CreateChannel(
        target, ChannelArguments(of_target, /*own_connection=*/true, retry)));
    channels.back()->GetState(true);  // starts to connect
  }
  const auto deadline = absl::ToChronoTime(absl::Now() + timeout);
  for (const auto& channel : channels) {
    if (!channel->WaitForConnected(deadline)) {
      return absl::UnavailableError(absl::StrCat(
          "--server: no connection to ", target, " within ",
          absl::FormatDuration(timeout), ", or it is not serving"));
    }
  }
  return channels;
}

}  // namespace posenc::load
