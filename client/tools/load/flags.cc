#include "client/tools/load/flags.h"

#include <cstdint>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/tools/flags/command_line.h"
#include "client/tools/load/units.h"
#include "core/base/status_macros.h"

namespace posenc::load {
namespace {

// Returns what is wrong with a text that must be a number in [0, 1]; empty if
// it is valid. CLI::Range would accept NaN.
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
      return InvalidText(text,
                         "calls between 1 and 100000, such as 16 or 1,16,64");
    }
    levels.push_back(level);
  }
  return levels;
}

absl::StatusOr<std::vector<std::int64_t>> ParseSizes(const std::string& text) {
  std::vector<std::int64_t> sizes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    ASSIGN_OR_RETURN(const std::int64_t bytes, ParseBytes(part));
    sizes.push_back(bytes);
  }
  return sizes;
}

// Returns a rule that sets *value to the result of parse(text), or refuses the
// flag's text if parse() fails.
template <typename T, typename Parse>
flags::FlagRules Into(T* value, const Parse& parse) {
  return {.fault = [value, parse](const std::string& text) -> std::string {
    auto parsed = parse(text);
    if (!parsed.ok()) return std::string(parsed.status().message());
    *value = *std::move(parsed);
    return "";
  }};
}

}  // namespace

std::vector<StepOptions> StepsOf(const Flags& flags) {
  std::vector<StepOptions> steps;
  if (flags.find_capacity) return steps;
  for (const double rate : flags.rates) {
    steps.push_back(flags.step);
    steps.back().rate = rate;
  }
  if (!steps.empty()) return steps;
  for (const int level : flags.in_flight) {
    steps.push_back(flags.step);
    steps.back().in_flight = level;
  }
  return steps;
}

void AddFlags(CLI::App* app, Flags* flags) {
  using flags::AddFlag;
  // Adds a flag whose text the rule `into` parses. --help shows
  // `default_value`.
  const auto parsed = [&](const char* name, const char* type,
                          const char* default_value,
                          const flags::FlagRules& into, const char* help) {
    AddFlag(
        app, name, [](const std::string&) {}, type, help, into);
    flags::ShowDefault(app, name, default_value);
  };
  // Adds a flag. --help shows the value of its variable as the default.
  const auto add = [&](const char* name, flags::Target value, const char* type,
                       const char* help, flags::FlagRules rules = {}) {
    rules.show_default = true;
    AddFlag(app, name, value, type, help, rules);
  };
  const auto duration = [](const std::string& text) {
    return ParseDuration(text);
  };
  WorkloadOptions* const workload = &flags->workload;
  StepOptions* const step = &flags->step;
  add("--server", &flags->server, "ADDRESS",
      "127.0.0.1:50051, dns:///host:port, unix:/path");
  flags::AddSecurityFlags(app, &flags->security);
  parsed("--in-flight", "N,...", "16", Into(&flags->in_flight, ParseInFlight),
         "Closed loop: calls in flight in each step");
  // The limit of 10^7 is far above the number of calls that gRPC can start in a
  // second.
  parsed("--rates", "R,...", "",
         Into(&flags->rates,
              [](const std::string& text) {
                return ParseNumbers(
                    text, 1e7,
                    "calls per second above 0, such as 1000,2000,4000");
              }),
         "Open loop: calls per second in each step; latency counts from when a "
         "call was due");
  AddFlag(
      app, "--arrivals",
      [step](const std::string& kind) { step->poisson = kind == "poisson"; },
      "KIND", "Open loop: even or poisson")
      ->check(CLI::IsMember({"even", "poisson"}))
      ->default_str("even");
  AddFlag(app, "--max-in-flight", &flags->max_in_flight, "N",
          "Open loop: further calls are sent later, or dropped (default 16384, "
          "less for large answers)",
          {.range = {{1, 100000}}});
  parsed(
      "--mix", "RPC,...", "ApplyRope", Into(&workload->mix, ParseMix),
      "ApplyRope, Reposition, BuildTable, AddEncoding, ResolveRope; each also "
      "with a weight, ApplyRope:3");
  parsed("--size", "SIZE,...", "64KiB", Into(&workload->sizes, ParseSizes),
         "Bytes of a call's tensor");
  parsed("--shape", "BxSxHxD,...", "", Into(&workload->shapes, ParseShapes),
         "Shapes instead of sizes");
  parsed("--dtype", "NAME,...", "float32", Into(&workload->dtypes, ParseDtypes),
         "float32, float16, bfloat16, float64, float8_e4m3fn, float8_e5m2");
  add("--preset", &workload->preset, "NAME",
      "A model's encoding instead of the plain one");
  add("--variants", &workload->variants, "N",
      "Requests of each kind that differ in data and positions",
      {.range = {{1, 1000}}});
  add("--seed", &flags->seed, "N", "Seed of data and order");
  add("--connections", &flags->connections, "N", "Connections",
      {.range = {{1, 10000}}});
  AddFlag(app, "--threads", &flags->threads, "N",
          "Threads for answers (default: half of the cores)",
          {.range = {{1, 256}}});
  parsed("--warm-up", "TIME", "1s",
         Into(&step->warm_up,
              [](const std::string& text) {
                return ParseDuration(text, /*allow_zero=*/true);
              }),
         "Uncounted time before each step");
  parsed("--duration", "TIME", "10s", Into(&step->duration, duration),
         "Time of each step");
  AddFlag(app, "--calls", &step->calls, "N",
          "Calls of each step, instead of --duration",
          {.range = {{1, std::int64_t{1} << 40}}});
  parsed("--timeout", "TIME", "10s", Into(&step->timeout, duration),
         "Deadline of a call, from when it was due, and of connecting");
  AddFlag(app, "--no-retry", &flags->no_retry, "",
          "Do not retry as the published service config says");
  add("--verify", &step->verify, "SHARE",
      "Share of answers to compare bit for bit with the first; the first is "
      "checked against the formula",
      {.fault = ShareFault});
  AddFlag(app, "--shared-memory", &flags->shared_memory, "MODE",
          "Tensors are in shared memory: in-place (default without a value) or "
          "out-of-place")
      ->expected(0, 1)
      ->check(CLI::IsMember({"in-place", "out-of-place"}));
  add("--max-error-rate", &flags->max_error_rate, "SHARE",
      "Share of failed, unsent or wrong calls that still exits 0",
      {.fault = ShareFault});
  AddFlag(app, "--find-capacity", &flags->find_capacity, "",
          "Find the highest rate with a p99 under --p99");
  parsed("--p99", "TIME", "10ms", Into(&flags->p99, duration),
         "p99 that --find-capacity allows");
  add("--max-steps", &flags->max_steps, "N", "Steps of --find-capacity",
      {.range = {{1, 100}}});
  parsed("--overload", "X,...", "",
         Into(&flags->overload,
              [](const std::string& text) {
                return ParseNumbers(text, 1000,
                                    "multiples of the peak above 0 and at most "
                                    "1000, such as 1,2,5,10");
              }),
         "Measure the peak, then the goodput at these multiples of it; without "
         "retries");
  add("--json", &flags->json_path, "FILE", "Report as JSON");
  add("--html", &flags->html_path, "FILE", "Report as a page with charts");
  AddFlag(app, "--quiet", &flags->quiet, "", "No progress");
  for (const auto& [a, b] : {std::pair{"--rates", "--in-flight"},
                             {"--rates", "--find-capacity"},
                             {"--calls", "--duration"},
                             {"--calls", "--find-capacity"},
                             {"--overload", "--rates"},
                             {"--overload", "--calls"},
                             {"--size", "--shape"}}) {
    app->get_option(a)->excludes(app->get_option(b));
  }
}

}  // namespace posenc::load
