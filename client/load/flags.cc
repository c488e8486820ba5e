#include "client/load/flags.h"

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
      return absl::InvalidArgumentError(
          absl::StrCat("--in-flight: \"", text,
                       "\"; must be calls between 1 and 100000, such as 16 or "
                       "1,16,64"));
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
  const auto warm_up = ParseDuration("--warm-up", flags.warm_up, true);
  if (!warm_up.ok()) return warm_up.status();
  step.warm_up = *warm_up;
  const auto duration = ParseDuration("--duration", flags.duration);
  if (!duration.ok()) return duration.status();
  step.duration = *duration;
  const auto timeout = ParseDuration("--timeout", flags.timeout);
  if (!timeout.ok()) return timeout.status();
  step.timeout = plan.timeout = *timeout;
  const auto p99 = ParseDuration("--p99", flags.p99);
  if (!p99.ok()) return p99.status();
  plan.p99 = *p99;
  step.calls = flags.calls;
  step.verify = flags.verify;
  step.seed = static_cast<std::uint64_t>(flags.seed);
  step.poisson = flags.arrivals == "poisson";
  const auto levels = ParseInFlight(flags.in_flight);
  if (!levels.ok()) return levels.status();
  plan.search = step;
  plan.search.in_flight = levels->front();
  if (!flags.overload.empty()) {
    auto multiples = ParseMultiples("--overload", flags.overload);
    if (!multiples.ok()) return multiples.status();
    plan.multiples = *std::move(multiples);
  }
  if (flags.find_capacity) return plan;
  if (!flags.rates.empty()) {
    const auto rates = ParseRates("--rates", flags.rates);
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
  const auto text = [&](const char* name, std::string* value, const char* type,
                        const char* help) {
    return app->add_option(name, *value, help)
        ->type_name(type)
        ->capture_default_str();
  };
  text("--server", &flags->server, "ADDRESS",
       "127.0.0.1:50051, dns:///host:port, unix:/path");
  flags::AddSecurityFlags(app, &flags->security);
  text("--in-flight", &flags->in_flight, "N,...",
       "Closed loop: calls kept in flight, a step each");
  text("--rates", &flags->rates, "R,...",
       "Open loop: calls due per second, a step each; latency counts from when "
       "a call was due");
  text("--arrivals", &flags->arrivals, "KIND", "Open loop: even or poisson")
      ->check(CLI::IsMember({"even", "poisson"}));
  app->add_option("--max-in-flight", flags->max_in_flight,
                  "Open loop: calls beyond it are sent later, or dropped (by "
                  "default 16384, less for large answers)")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  text("--mix", &flags->mix, "RPC:W,...",
       "ApplyRope, Reposition, BuildTable, AddEncoding, ResolveRope; weights");
  text("--size", &flags->sizes, "SIZE,...", "Bytes of a call's tensor");
  text("--shape", &flags->shapes, "BxSxHxD,...", "Shapes instead of sizes");
  text("--dtype", &flags->dtypes, "NAME,...",
       "float32, float16, bfloat16, float64");
  text("--preset", &flags->preset, "NAME",
       "A model's encoding, instead of the plain one");
  app->add_option("--variants", flags->variants,
                  "Requests of each kind, with other data and positions")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--seed", flags->seed, "Of data and order")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--connections", flags->connections, "Connections")
      ->type_name("N")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app->add_option("--threads", flags->threads,
                  "That wait for answers (by default half of the cores)")
      ->type_name("N")
      ->check(CLI::Range(1, 256));
  text("--warm-up", &flags->warm_up, "TIME", "Before each step, not counted");
  text("--duration", &flags->duration, "TIME", "Of each step");
  app->add_option("--calls", flags->calls, "Of each step, instead")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  text("--timeout", &flags->timeout, "TIME",
       "A call's deadline, from when it was due; and of connecting");
  app->add_flag("--no-retry", flags->no_retry,
                "Do not retry as the published service config says");
  app->add_option("--verify", flags->verify,
                  "Share of the answers compared bit for bit with the first, "
                  "which is checked against the formula")
      ->type_name("SHARE")
      ->check(CLI::Validator(ShareFault, ""))
      ->capture_default_str();
  app->add_option("--shared-memory", flags->shared_memory,
                  "Tensors lie in shared memory: rotated in place (the default "
                  "if no value follows), or out-of-place")
      ->type_name("MODE")
      ->expected(0, 1)
      ->check(CLI::IsMember({"in-place", "out-of-place"}));
  text("--protocol", &flags->protocol, "NAME",
       "native, or kserve: ModelInfer instead of the RPCs")
      ->check(CLI::IsMember({"native", "kserve"}));
  app->add_option("--max-error-rate", flags->max_error_rate,
                  "Failed, unsent and wrong calls that still are exit code 0")
      ->type_name("SHARE")
      ->check(CLI::Validator(ShareFault, ""))
      ->capture_default_str();
  app->add_flag("--find-capacity", flags->find_capacity,
                "Search the highest rate with a p99 under --p99");
  text("--p99", &flags->p99, "TIME", "Bound of --find-capacity");
  app->add_option("--max-steps", flags->max_steps, "Of --find-capacity")
      ->type_name("N")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  text("--overload", &flags->overload, "X,...",
       "Measure the peak, then offer these multiples of it: goodput against "
       "offered load; without retries");
  text("--json", &flags->json_path, "FILE", "Report as JSON");
  text("--html", &flags->html_path, "FILE", "Report as a page with charts");
  text("--hlog", &flags->hlog_path, "FILE",
       "Histograms of every second, HdrHistogram's log format");
  app->add_option("--compare", flags->compare,
                  "Two JSON reports: prints what differs (--html: a page)")
      ->type_name("A.json B.json")
      ->expected(2);
  app->add_flag("--quiet", flags->quiet, "No progress");
}

}  // namespace posenc::load
