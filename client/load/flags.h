// The command line, and the measurement that it asks for.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/flags/security_flags.h"
#include "client/load/engine.h"
#include "client/load/workload.h"

namespace posenc::load {

// The flags as they are given: lists and quantities are text still. Defaults
// are part of the interface (--help shows them).
struct Flags {
  std::string server;
  flags::SecurityFlags security;
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
  std::int64_t seed = 1;
  int connections = 1;
  int threads = 0;
  std::string warm_up = "1s";
  std::string duration = "10s";
  std::int64_t calls = 0;
  std::string timeout = "10s";
  bool no_retry = false;
  double verify = 0;
  std::string shared_memory;  // "in-place", "out-of-place"; empty: off
  std::string protocol = "native";
  double max_error_rate = 0;
  bool find_capacity = false;
  std::string p99 = "10ms";
  int max_steps = 12;
  std::string overload;
  std::string json_path;
  std::string html_path;
  std::string hlog_path;
  std::vector<std::string> compare;
  bool quiet = false;
};

// What is to be measured. With --find-capacity, `search` is its closed loop,
// with which it starts, and there are no steps. With --overload the steps are
// the closed loops whose best throughput is the peak, unless --find-capacity
// finds it; the loads themselves follow from the peak.
struct Plan {
  ClientOptions security;  // with target, TLS and token alone
  WorkloadOptions workload;
  std::vector<StepOptions> steps;
  StepOptions search;
  std::vector<double> multiples;  // of --overload
  absl::Duration p99;
  absl::Duration timeout;
};

void AddFlags(CLI::App* app, Flags* flags);

// Finds combinations of flags that make no sense and that CLI11 cannot be told
// of. INVALID_ARGUMENT names the flag.
absl::Status CheckFlags(const CLI::App& app, const Flags& flags);

// Parses the flags. The open loop's limit of calls in flight is still missing:
// it depends on the sizes of messages, which are known when the workload is
// built.
absl::StatusOr<Plan> MakePlan(const Flags& flags);

}  // namespace posenc::load
