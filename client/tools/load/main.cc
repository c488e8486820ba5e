// posenc-load: measures a posenc server. This file runs the steps and judges
// their results. The engine (engine.h) sends calls and measures, and report.h
// prints.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/tools/flags/command_line.h"
#include "client/tools/load/capacity.h"
#include "client/tools/load/check.h"
#include "client/tools/load/engine.h"
#include "client/tools/load/flags.h"
#include "client/tools/load/report.h"
#include "client/tools/load/units.h"
#include "client/tools/load/workload.h"
#include "core/base/status_macros.h"

namespace posenc::load {
namespace {

// Exit codes are part of the interface (README.md, --help): 1 if the server is
// too slow, wrong or absent, 2 if the command line is wrong.
enum ExitCode { kOk = 0, kFailed = 1, kUsage = 2 };

// Set by SIGINT and SIGTERM. A signal handler can safely change only an atomic
// variable.
std::atomic<bool> interrupted{false};

int Fail(const absl::Status& status, int exit_code) {
  absl::FPrintF(stderr, "posenc-load: %s: %s\n",
                absl::StatusCodeToString(status.code()), status.message());
  return exit_code;
}

// Returns the default of --max-in-flight: the number of calls whose answers
// have 2 GiB together, but at least 4 and at most 16384, so that this machine's
// memory suffices. Requests need no limit, because all calls share the bytes of
// the requests. With `shared`, the limits are 256 MiB and 1024 calls, because
// every slot has memory for its tensors from the start, and /dev/shm is small.
int OpenInFlight(const std::vector<Case>& workload, bool shared) {
  std::int64_t largest = 1;
  for (const Case& one : workload) {
    largest = std::max(largest, one.tensor_bytes);
  }
  const std::int64_t memory = std::int64_t{shared ? 256 : 2048} << 20;
  return static_cast<int>(
      std::clamp<std::int64_t>(memory / largest, 4, shared ? 1024 : 16384));
}

std::string Label(const StepOptions& step) {
  return step.rate > 0 ? absl::StrFormat("%.6g/s", step.rate)
                       : absl::StrCat(step.in_flight, " in flight");
}

// A run of the command: connects, measures every step, reports.
class Run {
 public:
  Run(const Flags& flags, ClientOptions security, std::vector<Case> workload);

  // Returns an error, for exit code 1, if the run has failed.
  absl::Status Main();

 private:
  // Connects, asks for the server's info and, with --verify, learns the
  // answers.
  absl::Status Prepare();
  StepResult RunStep(const StepOptions& step);
  // Search(), RunSteps() and Overload() return an error, with the reason, if
  // the load failed.
  absl::Status Search();
  absl::Status RunSteps();
  // Offers multiples of the peak that the earlier steps have found.
  absl::Status Overload();
  // Returns false for overloads, because retries would hide refusals, and for
  // calls in place, which must not be made twice.
  bool Retries() const {
    return !flags_.no_retry && flags_.overload.empty() &&
           flags_.shared_memory != "in-place";
  }
  Json Settings() const;
  // Returns the largest number of calls in flight in any step.
  int MostSlots() const;

  const Flags& flags_;
  const ClientOptions security_;  // only target, TLS and token
  std::vector<Case> workload_;
  const int open_in_flight_;
  std::vector<StepOptions> steps_;
  // The closed loop that begins a search. The options of the search's open
  // loops and of overloads start as copies of search_.
  StepOptions search_;
  SteadyClock clock_;
  std::shared_ptr<SharedRegion> region_;  // null: tensors are sent
  std::unique_ptr<Engine> engine_;
  Json report_;
};

Run::Run(const Flags& flags, ClientOptions security, std::vector<Case> workload)
    : flags_(flags),
      security_(std::move(security)),
      workload_(std::move(workload)),
      open_in_flight_(
          flags.max_in_flight > 0
              ? flags.max_in_flight
              : OpenInFlight(workload_, !flags.shared_memory.empty())),
      steps_(StepsOf(flags)),
      search_(flags.step) {
  search_.in_flight = flags.in_flight.front();
  for (StepOptions& step : steps_) {
    if (step.rate > 0) step.in_flight = open_in_flight_;
  }
}

int Run::MostSlots() const {
  int most = flags_.find_capacity || !flags_.overload.empty()
                 ? std::max(open_in_flight_, search_.in_flight)
                 : 1;
  for (const StepOptions& step : steps_) {
    most = std::max(most, step.in_flight);
  }
  return most;
}

absl::Status Run::Prepare() {
  // Checks first that the report can be written, because the steps take
  // minutes.
  for (const std::string* path : {&flags_.json_path, &flags_.html_path}) {
    if (path->empty()) continue;
    if (!std::ofstream(*path, std::ios::app)) {
      return absl::PermissionDeniedError(*path + ": cannot be written");
    }
  }
  const absl::Duration timeout = flags_.step.timeout;
  ASSIGN_OR_RETURN(const auto channels,
                   ConnectAll(flags_.server, flags_.connections, Retries(),
                              timeout, security_));
  // Leaves half of the cores to the server, which may run on this machine.
  const int threads =
      flags_.threads > 0
          ? flags_.threads
          : std::clamp(
                static_cast<int>(std::thread::hardware_concurrency()) / 2, 1,
                4);
  engine_ = std::make_unique<Engine>(&workload_, channels, threads, &clock_);

  const Client client(channels[0], timeout);
  const auto info = client.GetServerInfo();
  report_["server"] = info.ok()
                          ? Json{{"version", info->version()},
                                 {"instruction_set", info->instruction_set()}}
                          : Json(nullptr);
  if (flags_.step.verify > 0) {
    v1::ResolveRopeResponse rope;
    const std::string& preset = flags_.workload.preset;
    if (!preset.empty()) {
      v1::ResolveRopeRequest request;
      request.mutable_rope()->set_preset(preset);
      ASSIGN_OR_RETURN(rope, client.ResolveRope(request));
    }
    RETURN_IF_ERROR(
        engine_->Learn(&workload_, timeout,
                       [&](const Case& one, const std::string& request,
                           const std::string& answer) {
                         return CheckAnswer(one.rpc, request, answer,
                                            preset.empty() ? nullptr : &rope);
                       }));
  }
  if (!flags_.shared_memory.empty()) {
    ASSIGN_OR_RETURN(region_, ShareWorkload(client, flags_.workload,
                                            flags_.shared_memory == "in-place",
                                            MostSlots(), &workload_));
  }
  return absl::OkStatus();
}

StepResult Run::RunStep(const StepOptions& step) {
  const std::string label = Label(step);
  const bool live = !flags_.quiet && isatty(STDERR_FILENO);
  if (live) std::fprintf(stderr, "%-12s warming up\n", label.c_str());
  Json series = Json::array();
  const StepResult result = engine_->Run(
      step,
      [&](const Interval& interval) {
        // Leaves out the time after the last whole second if it is too short to
        // give a rate.
        if (interval.seconds < 0.25 && !series.empty()) return;
        series.push_back(PointJson(interval));
        if (live) {
          std::fprintf(stderr, "%s\n", ProgressLine(label, interval).c_str());
        }
      },
      &interrupted);
  report_["steps"].push_back(
      StepJson(label, result, workload_, std::move(series)));
  return result;
}

// Searches the capacity (capacity.h), starting with the throughput of a closed
// loop. Fails if no rate met --p99, or if no call was answered.
absl::Status Run::Search() {
  const absl::Status none = absl::FailedPreconditionError(absl::StrCat(
      "--p99: no rate has its p99 under ", absl::FormatDuration(flags_.p99)));
  const StepResult closed = RunStep(search_);
  if (closed.total.ok == 0 || interrupted) return none;
  const double start = std::ceil(static_cast<double>(closed.total.ok) /
                                 std::max(closed.seconds, 1e-9));
  StepOptions step = search_;
  step.in_flight = open_in_flight_;
  const auto bound = absl::ToInt64Nanoseconds(flags_.p99);
  const Capacity found =
      FindCapacity(start, flags_.max_steps, [&](double rate) {
        if (interrupted) return false;
        step.rate = rate;
        const StepResult result = RunStep(step);
        return result.total.ok > 0 &&
               result.total.latency.Percentile(99) <= bound &&
               result.ErrorRate() <= flags_.max_error_rate;
      });
  report_["capacity"] = {
      {"calls_per_second", found.rate},
      {"failed_at", found.failed > 0 ? Json(found.failed) : Json(nullptr)},
      {"p99_bound_us", static_cast<double>(bound) / 1e3},
      {"steps", found.steps}};
  return found.rate > 0 && !interrupted ? absl::OkStatus() : none;
}

absl::Status Run::RunSteps() {
  absl::Status passed;
  for (const StepOptions& step : steps_) {
    const StepResult result = RunStep(step);
    if (result.total.ok + result.Failed() == 0) {
      passed =
          absl::FailedPreconditionError("no call was made; raise --duration");
    }
    // The steps that search the peak may overload the server. Their errors are
    // reported, but are not a failure.
    if (flags_.overload.empty() && result.ErrorRate() > flags_.max_error_rate) {
      passed = absl::FailedPreconditionError(absl::StrFormat(
          "%s: error rate is %.4g; the limit is %g (--max-error-rate)",
          Label(step), result.ErrorRate(), flags_.max_error_rate));
    }
    if (interrupted) break;
  }
  return passed;
}

absl::Status Run::Overload() {
  double peak = 0;
  if (flags_.find_capacity) {
    peak = report_["capacity"].at("calls_per_second").get<double>();
  } else {
    for (const Json& step : report_["steps"]) {
      peak = std::max(peak, step.at("good_per_second").get<double>());
    }
  }
  report_["peak"] = peak;
  report_["overload"] = Json::array();
  if (peak <= 0) {
    return absl::FailedPreconditionError(
        "--overload: no call was answered, so there is no peak");
  }
  StepOptions step = search_;
  step.in_flight = open_in_flight_;
  step.cool_down = true;
  for (const double multiple : flags_.overload) {
    if (interrupted) break;
    step.rate = multiple * peak;
    report_["overload"].push_back(OverloadJson(multiple, peak, RunStep(step)));
  }
  return absl::OkStatus();
}

Json Run::Settings() const {
  Json cases = Json::array();
  for (const Case& one : workload_) {
    cases.push_back({{"name", one.name},
                     {"weight", one.weight},
                     {"request_bytes", one.requests[0].bytes}});
  }
  return {{"loop", flags_.find_capacity   ? "search"
                   : flags_.rates.empty() ? "closed"
                                          : "open"},
          {"arrivals", flags_.step.poisson ? "poisson" : "even"},
          {"cases", std::move(cases)},
          {"preset", flags_.workload.preset},
          {"variants", flags_.workload.variants},
          {"seed", flags_.seed},
          {"connections", flags_.connections},
          {"max_in_flight", open_in_flight_},
          {"warm_up_s", absl::ToDoubleSeconds(flags_.step.warm_up)},
          {"duration_s", absl::ToDoubleSeconds(flags_.step.duration)},
          {"calls", flags_.step.calls},
          {"timeout_s", absl::ToDoubleSeconds(flags_.step.timeout)},
          {"retry", Retries()},
          {"verify", flags_.step.verify},
          {"shared_memory", flags_.shared_memory},
          {"max_error_rate", flags_.max_error_rate}};
}

absl::Status Run::Main() {
  report_ = {{"tool", "posenc-load"},
             {"version", POSENC_VERSION},
             {"started", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(),
                                          absl::UTCTimeZone())},
             {"target", flags_.server},
             {"server", nullptr},
             {"settings", Settings()},
             {"capacity", nullptr},
             {"interrupted", false},
             {"steps", Json::array()}};
  RETURN_IF_ERROR(Prepare());

  absl::Status passed = flags_.find_capacity ? Search() : RunSteps();
  if (passed.ok() && !flags_.overload.empty()) passed = Overload();
  for (const Json& step : report_["steps"]) {
    if (step.at("wrong").get<std::int64_t>() == 0) continue;
    passed = absl::FailedPreconditionError(
        step.at("first_wrong").get<std::string>());
  }
  report_["interrupted"] = interrupted.load();
  std::fputs(ReportText(report_).c_str(), stdout);
  std::fflush(stdout);
  if (!flags_.json_path.empty()) {
    RETURN_IF_ERROR(WriteFile(flags_.json_path, report_.dump(1) + "\n"));
  }
  if (!flags_.html_path.empty()) {
    RETURN_IF_ERROR(WriteFile(flags_.html_path, ReportPage(report_)));
  }
  return interrupted ? absl::CancelledError(
                           "interrupted; the figures cover only a part")
                     : passed;
}

int Main(int argc, char** argv) {
  CLI::App app("Measures a posenc server: throughput and latency under load.",
               "posenc-load");
  flags::FormatHelp(&app);
  app.footer(
      "\nExamples:\n"
      "  posenc-load --server 127.0.0.1:50051 --in-flight 1,16,64\n"
      "  posenc-load --server 127.0.0.1:50051 --rates 1000,2000,4000 "
      "--html load.html\n"
      "  posenc-load --server 127.0.0.1:50051 --find-capacity --p99 5ms\n"
      "  posenc-load --server 127.0.0.1:50051 --in-flight 4,16,64 "
      "--overload 1,2,5,10 --timeout 1s\n"
      "\nExit codes: 0 ok; 1 failed, or more errors than --max-error-rate; 2 "
      "wrong usage.");
  app.set_version_flag("--version", POSENC_VERSION);
  Flags flags;
  AddFlags(&app, &flags);
  const absl::Status checked = flags::CheckArguments(argc, argv);
  if (!checked.ok()) return Fail(checked, kUsage);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return Fail(absl::InvalidArgumentError(error.what()), kUsage);
  }
  if (app.count("--shared-memory") > 0 && flags.shared_memory.empty()) {
    flags.shared_memory = "in-place";
  }
  flags.step.seed = flags.workload.seed =
      static_cast<std::uint64_t>(flags.seed);
  ClientOptions security;
  security.target = flags.server;
  if (flags.server.empty()) {
    return Fail(absl::InvalidArgumentError(
                    "--server: missing; must be an address such as "
                    "127.0.0.1:50051 (posencd starts a server)"),
                kUsage);
  }
  absl::Status status = flags::ApplySecurityFlags(flags.security, &security);
  if (!status.ok()) return Fail(status, kUsage);
  auto workload = BuildWorkload(flags.workload);
  if (!workload.ok()) return Fail(workload.status(), kUsage);

  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags =
      static_cast<int>(SA_RESETHAND);  // a second signal ends the process
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  status = Run(flags, std::move(security), *std::move(workload)).Main();
  return status.ok() ? kOk : Fail(status, kFailed);
}

}  // namespace
}  // namespace posenc::load

// Catches exceptions, because libraries may throw, for example if memory is
// exhausted.
int main(int argc, char** argv) {
  posenc::flags::SilenceGrpc();
  // Turns off the search for deadlocks, which Debian's abseil makes at every
  // lock. posencd turns it off, too.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  try {
    return posenc::load::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "posenc-load: %s\n", error.what());
  } catch (...) {
    std::fputs("posenc-load: unknown exception\n", stderr);
  }
  return 1;
}
