// The command's flags and the run that they ask for.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/load/engine.h"
#include "client/load/workload.h"

namespace posenc::load {

struct Flags {
  std::string server;
  std::string rates;
  std::string arrivals = "even";
  std::string in_flight = "16";
  int max_in_flight = 0;
  std::string mix = "ApplyRope";
  std::string sizes = "64KiB";
  std::string shapes;
  std::string dtypes = "float32";
  std::string preset;
  int variants = 1;
  std::uint64_t seed = 1;
  int connections = 1;
  int threads = 0;
  std::string warm_up = "1s";
  std::string duration = "10s";
  std::int64_t calls = 0;
  std::string timeout = "10s";
  bool no_retry = false;
  double verify = 0;
  double max_error_rate = 0;
  bool find_capacity = false;
  std::string p99 = "10ms";
  int max_steps = 12;
  std::string json_path;
  std::string html_path;
  std::string hlog_path;
  std::vector<std::string> compare;
  bool quiet = false;
};

struct Plan {
  WorkloadOptions workload;
  std::vector<StepOptions> steps;
  StepOptions search;  // of --find-capacity
  absl::Duration p99;
  absl::Duration timeout;
};

void AddFlags(CLI::App* app, Flags* flags);

// Errors: INVALID_ARGUMENT, naming the flag, for what CLI11 has no word for.
absl::Status CheckFlags(const CLI::App& app, const Flags& flags);

// Everything but the open loop's limit of calls in flight, which depends on
// the messages' sizes.
absl::StatusOr<Plan> MakePlan(const Flags& flags);

}  // namespace posenc::load
