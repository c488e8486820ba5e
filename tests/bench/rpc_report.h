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
  std::int64_t bytes = 0;  // bytes of the tensor in a call
  int in_flight = 1;
  std::string absent;                    // why there are no numbers
  std::vector<double> calls_per_second;  // one for each round
  std::vector<double> latencies;         // one for each call, in seconds
  double calls = 0, cpu_seconds = 0, faults = 0;  // sums of all rounds
  double peak_resident_bytes = 0;
};

void PrintTable(const std::vector<Result>& results);
bool WriteJson(const std::vector<Result>& results, const std::string& path);

}  // namespace posenc::bench
