// Results of the benchmark of RPCs as a table and as JSON.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace posenc::bench {

// One case: a server, called in one way.
struct Result {
  std::string name;
  std::string transport;   // "tcp", "unix"
  std::int64_t bytes = 0;  // of tensor, per call
  int in_flight = 1;
  std::string absent;                             // why there are no numbers
  std::vector<double> calls_per_second;           // of each round
  std::vector<double> latencies;                  // of each call, in seconds
  double calls = 0, cpu_seconds = 0, faults = 0;  // over all rounds
  double peak_resident_bytes = 0;
};

void PrintTable(const std::vector<Result>& results);
bool WriteJson(const std::vector<Result>& results, const std::string& path);

}  // namespace posenc::bench
