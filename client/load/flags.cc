#include "client/load/flags.h"

#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/load/units.h"

namespace posenc::load {
namespace {

// CLI::Range takes NaN for a number in its range.
std::string ShareFault(const std::string& text) {
  double share;
  if (absl::SimpleAtod(text, &share) && share >= 0 && share <= 1) return "";
  return absl::StrCat(text, ": no number from 0 to 1");
}

absl::StatusOr<std::vector<int>> ParseInFlight(const std::string& text) {
  std::vector<int> levels;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int level;
    if (!absl::SimpleAtoi(part, &level) || level < 1 || level > 100000) {
      return InvalidFlag("--in-flight", text,
                         "calls between 1 and 100000, such as 16 or 1,16,64");
    }
    levels.push_back(level);
  }
  return levels;
}

absl::StatusOr<WorkloadOptions> PlanWorkload(const Flags& flags) {
  WorkloadOptions options;
  auto mix = ParseMix("--mix", flags.mix);
  if (!mix.ok()) return mix.status();
  options.mix = *std::move(mix);
  options.sizes.clear();
  for (const absl::string_view part : absl::StrSplit(flags.sizes, ',')) {
    const auto bytes = ParseBytes("--size", part);
    if (!bytes.ok()) return bytes.status();
    options.sizes.push_back(*bytes);
  }
  if (!flags.shapes.empty()) {
    auto shapes = ParseShapes("--shape", flags.shapes);
    if (!shapes.ok()) return shapes.status();
    options.shapes = *std::move(shapes);
  }
  auto dtypes = ParseDtypes("--dtype", flags.dtypes);
  if (!dtypes.ok()) return dtypes.status();
  options.dtypes = *std::move(dtypes);
  options.preset = flags.preset;
  options.variants = flags.variants;
  options.seed = static_cast<std::uint64_t>(flags.seed);
  return options;
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const Flags& flags) {
  Plan plan;
  plan.security.target = flags.server;
  const absl::Status secured =
      flags::ApplySecurityFlags(flags.security, &plan.security);
  if (!secured.ok()) return secured;
  auto workload = PlanWorkload(flags);
  if (!workload.ok()) return workload.status();
  plan.workload = *std::move(workload);
  StepOptions step;
  for (const auto& [flag, text, duration] :
       {std::tuple("--warm-up", flags.warm_up, &step.warm_up),
        std::tuple("--duration", flags.duration, &step.duration),
        std::tuple("--timeout", flags.timeout, &step.timeout),
        std::tuple("--p99", flags.p99, &plan.p99)}) {
    const auto parsed = ParseDuration(flag, text, duration == &step.warm_up);
    if (!parsed.ok()) return parsed.status();
    *duration = *parsed;
  }
  plan.timeout = step.timeout;
  step.calls = flags.calls;
  step.verify = flags.verify;
  step.seed = static_cast<std::uint64_t>(flags.seed);
  step.poisson = flags.arrivals == "poisson";
  const auto levels = ParseInFlight(flags.in_flight);
  if (!levels.ok()) return levels.status();
  plan.search = step;
  plan.search.in_flight = levels->front();
  if (!flags.overload.empty()) {
    auto multiples =
        ParseNumbers("--overload", flags.overload, 1000,
                     "multiples of the peak above 0 and at most 1000, such as "
                     "1,2,5,10");
    if (!multiples.ok()) return multiples.status();
    plan.multiples = *std::move(multiples);
  }
  if (flags.find_capacity) return plan;
  if (!flags.rates.empty()) {
    // gRPC starts far fewer than 10^7 calls a second.
    const auto rates =
        ParseNumbers("--rates", flags.rates, 1e7,
                     "calls per second above 0, such as 1000,2000,4000");
    if (!rates.ok()) return rates.status();
    for (const double rate : *rates) {
      plan.steps.push_back(step);
      plan.steps.back().rate = rate;
    }
    return plan;
  }
  for (const int level : *levels) {
    plan.steps.push_back(step);
    plan.steps.back().in_flight = level;
  }
  return plan;
}

absl::Status CheckFlags(const CLI::App& app, const Flags& flags) {
  if (flags.server.empty()) {
    return absl::InvalidArgumentError(
        "--server: missing; must be an address such as 127.0.0.1:50051 "
        "(posencd starts a server)");
  }
  const auto given = [&](const char* name) { return app.count(name) > 0; };
  for (const auto& [a, b] : {std::pair{"--rates", "--in-flight"},
                             {"--rates", "--find-capacity"},
                             {"--calls", "--duration"},
                             {"--calls", "--find-capacity"},
                             {"--overload", "--rates"},
                             {"--overload", "--calls"},
                             {"--size", "--shape"},
                             {"--protocol", "--shared-memory"}}) {
    if (given(a) && given(b)) {
      return absl::InvalidArgumentError(
          absl::StrCat(a, ": excludes ", b, "; must be given alone"));
    }
  }
  return absl::OkStatus();
}

void AddFlags(CLI::App* app, Flags* flags) {
  // The default is shown, unless it stands for what the help says.
  const auto hidden = [&](const char* name, auto* value, const char* type,
                          const char* help) {
    return app->add_option(name, *value, help)->type_name(type);
  };
  const auto add = [&](const char* name, auto* value, const char* type,
                       const char* help) {
    return hidden(name, value, type, help)->capture_default_str();
  };
  add("--server", &flags->server, "ADDRESS",
      "127.0.0.1:50051, dns:///host:port, unix:/path");
  flags::AddSecurityFlags(app, &flags->security);
  add("--in-flight", &flags->in_flight, "N,...",
      "Closed loop: calls kept in flight, a step each");
  add("--rates", &flags->rates, "R,...",
      "Open loop: calls due per second, a step each; latency counts from when "
      "a call was due");
  add("--arrivals", &flags->arrivals, "KIND", "Open loop: even or poisson")
      ->check(CLI::IsMember({"even", "poisson"}));
  hidden("--max-in-flight", &flags->max_in_flight, "N",
         "Open loop: calls beyond it are sent later, or dropped (by "
         "default 16384, less for large answers)")
      ->check(CLI::Range(1, 100000));
  add("--mix", &flags->mix, "RPC:W,...",
      "ApplyRope, Reposition, BuildTable, AddEncoding, ResolveRope; weights");
  add("--size", &flags->sizes, "SIZE,...", "Bytes of a call's tensor");
  add("--shape", &flags->shapes, "BxSxHxD,...", "Shapes instead of sizes");
  add("--dtype", &flags->dtypes, "NAME,...",
      "float32, float16, bfloat16, float64");
  add("--preset", &flags->preset, "NAME",
      "A model's encoding, instead of the plain one");
  add("--variants", &flags->variants, "N",
      "Requests of each kind, with other data and positions")
      ->check(CLI::Range(1, 1000));
  add("--seed", &flags->seed, "N", "Of data and order");
  add("--connections", &flags->connections, "N", "Connections")
      ->check(CLI::Range(1, 10000));
  hidden("--threads", &flags->threads, "N",
         "That wait for answers (by default half of the cores)")
      ->check(CLI::Range(1, 256));
  add("--warm-up", &flags->warm_up, "TIME", "Before each step, not counted");
  add("--duration", &flags->duration, "TIME", "Of each step");
  hidden("--calls", &flags->calls, "N", "Of each step, instead")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  add("--timeout", &flags->timeout, "TIME",
      "A call's deadline, from when it was due; and of connecting");
  app->add_flag("--no-retry", flags->no_retry,
                "Do not retry as the published service config says");
  add("--verify", &flags->verify, "SHARE",
      "Share of the answers compared bit for bit with the first, "
      "which is checked against the formula")
      ->check(CLI::Validator(ShareFault, ""));
  hidden("--shared-memory", &flags->shared_memory, "MODE",
         "Tensors lie in shared memory: rotated in place (the default "
         "if no value follows), or out-of-place")
      ->expected(0, 1)
      ->check(CLI::IsMember({"in-place", "out-of-place"}));
  add("--protocol", &flags->protocol, "NAME",
      "native, or kserve: ModelInfer instead of the RPCs")
      ->check(CLI::IsMember({"native", "kserve"}));
  add("--max-error-rate", &flags->max_error_rate, "SHARE",
      "Failed, unsent and wrong calls that still are exit code 0")
      ->check(CLI::Validator(ShareFault, ""));
  app->add_flag("--find-capacity", flags->find_capacity,
                "Search the highest rate with a p99 under --p99");
  add("--p99", &flags->p99, "TIME", "Bound of --find-capacity");
  add("--max-steps", &flags->max_steps, "N", "Of --find-capacity")
      ->check(CLI::Range(1, 100));
  add("--overload", &flags->overload, "X,...",
      "Measure the peak, then offer these multiples of it: goodput against "
      "offered load; without retries");
  add("--json", &flags->json_path, "FILE", "Report as JSON");
  add("--html", &flags->html_path, "FILE", "Report as a page with charts");
  add("--hlog", &flags->hlog_path, "FILE",
      "Histograms of every second, HdrHistogram's log format");
  hidden("--compare", &flags->compare, "A.json B.json",
         "Two JSON reports: prints what differs (--html: a page)")
      ->expected(2);
  app->add_flag("--quiet", flags->quiet, "No progress");
}

}  // namespace posenc::load
