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

// What is to be measured. Defaults are part of the interface (--help shows
// them, as AddFlags has them).
struct Flags {
  std::string server;
  flags::SecurityFlags security;
  std::vector<double> rates;
  std::vector<int> in_flight = {16};
  int max_in_flight = 0;
  WorkloadOptions workload;
  StepOptions step;  // of each step, without its rate or calls in flight
  std::int64_t seed = 1;
  int connections = 1;
  int threads = 0;
  bool no_retry = false;
  std::string shared_memory;  // "in-place", "out-of-place"; empty: off
  std::string protocol = "native";
  double max_error_rate = 0;
  bool find_capacity = false;
  absl::Duration p99 = absl::Milliseconds(10);
  int max_steps = 12;
  std::vector<double> overload;  // multiples of the peak
  std::string json_path;
  std::string html_path;
  std::string hlog_path;
  std::vector<std::string> compare;
  bool quiet = false;
};

void AddFlags(CLI::App* app, Flags* flags);

// Finds combinations of flags that make no sense and that CLI11 cannot be told
// of. INVALID_ARGUMENT names the flag.
absl::Status CheckFlags(const CLI::App& app, const Flags& flags);

// The steps that the flags ask for, none with --find-capacity. With --overload
// they are the closed loops whose best throughput is the peak; the loads
// themselves follow from it. The open loop's limit of calls in flight is still
// missing: it depends on the sizes of messages.
std::vector<StepOptions> StepsOf(const Flags& flags);

}  // namespace posenc::load
