// Results of the benchmark of RPCs as a table, as figures and as JSON.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace posenc::bench {

// One case: a server, called in one way.
struct Result {
  std::string name;
  std::string transport;   // "tcp", "unix"
  std::int64_t bytes = 0;  // of tensor, per call
  int in_flight = 1;
  int channels = 1;
  std::string absent;                             // why there are no numbers
  std::vector<double> calls_per_second;           // of each round
  std::vector<double> latencies;                  // of each call, in seconds
  double calls = 0, cpu_seconds = 0, faults = 0;  // over all rounds
  double peak_resident_bytes = 0;
};

double Median(std::vector<double> values);
// Half of the range of the rounds, divided by their median.
double Spread(const Result& result);
double Gbps(const Result& result);
// Median of the rounds' ratios; none if either was not measured.
std::optional<double> Ratio(const Result& result, const Result& to);
// Null if there is no such case.
const Result* Find(const std::vector<Result>& results, const std::string& name,
                   const Result& like);

void PrintTable(const std::vector<Result>& results);
// Prints the goals and the measured figures.
void PrintFigures(const std::vector<Result>& results);
bool WriteJson(const std::vector<Result>& results, const std::string& path);

}  // namespace posenc::bench
