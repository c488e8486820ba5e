// The command line, and the measurement that it describes.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/tools/flags/security_flags.h"
#include "client/tools/load/engine.h"
#include "client/tools/load/workload.h"

namespace posenc::load {

// The measurement that the flags describe, and the defaults of the flags, which
// are part of the interface. For some flags, AddFlags() repeats the default as
// a text, which --help shows.
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
  double max_error_rate = 0;
  bool find_capacity = false;
  absl::Duration p99 = absl::Milliseconds(10);
  int max_steps = 12;
  std::vector<double> overload;  // multiples of the peak
  std::string json_path;
  std::string html_path;
  bool quiet = false;
};

void AddFlags(CLI::App* app, Flags* flags);

// Returns the steps that the flags describe; none with --find-capacity. With
// --overload the steps are closed loops. Their best throughput is the peak, and
// the overloads are multiples of the peak. The steps do not have
// --max-in-flight yet, because its default depends on the sizes of messages.
std::vector<StepOptions> StepsOf(const Flags& flags);

}  // namespace posenc::load
