#include "tests/bench/rpc_report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>

#include "nlohmann/json.hpp"

namespace posenc::bench {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kMicro = 1e6;
// The servers that ratios refer to, if they were measured.
constexpr const char* kReferences[] = {"base",  "base+pass", "generated sync",
                                       "empty", "tonic",     "posenc"};

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const std::size_t index = std::min(
      values.size() - 1, static_cast<std::size_t>(part * values.size()));
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[index];
}

std::string Size(std::int64_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  return std::to_string(bytes >> 10) + " KiB";
}

bool SameBlock(const Result& a, const Result& b) {
  return a.transport == b.transport && a.bytes == b.bytes &&
         a.in_flight == b.in_flight;
}

double Median(std::vector<double> values) { return Percentile(values, 0.5); }

// Half of the range of calls per second over the rounds, divided by their
// median.
double Spread(const Result& result) {
  const auto [low, high] = std::minmax_element(result.calls_per_second.begin(),
                                               result.calls_per_second.end());
  return (*high - *low) / 2 / Median(result.calls_per_second);
}

double Gbps(const Result& result) {
  return Median(result.calls_per_second) * result.bytes / 1e9;
}

// Divides each round's calls per second by those of the server `name` in the
// same block, and returns the median ratio; none if either server was not
// measured.
std::optional<double> RatioTo(const std::string& name, const Result& result,
                              const std::vector<Result>& results) {
  const auto to =
      std::find_if(results.begin(), results.end(), [&](const Result& other) {
        return other.name == name && SameBlock(other, result);
      });
  if (to == results.end() || &*to == &result || !result.absent.empty() ||
      !to->absent.empty()) {
    return std::nullopt;
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < result.calls_per_second.size(); ++i) {
    ratios.push_back(result.calls_per_second[i] / to->calls_per_second[i]);
  }
  return Median(ratios);
}

double CpuPerGb(const Result& result) {
  return result.cpu_seconds / (result.calls * result.bytes / 1e9);
}

void PrintRow(const std::vector<Result>& results, const Result& result) {
  std::printf("  %-26s", result.name.c_str());
  if (!result.absent.empty()) {
    std::printf(" %s\n", result.absent.c_str());
    return;
  }
  std::printf(" %6.3f %4.0f%% %8.1f %9.0f %9.0f %8.3f %8.1f %9.1f %8.0f",
              Gbps(result), 100 * Spread(result),
              Median(result.calls_per_second),
              kMicro * Percentile(result.latencies, 0.5),
              kMicro * Percentile(result.latencies, 0.99), CpuPerGb(result),
              kMicro * result.cpu_seconds / result.calls,
              result.faults / result.calls, result.peak_resident_bytes / kMiB);
  for (const char* const name : kReferences) {
    const std::optional<double> ratio = RatioTo(name, result, results);
    if (ratio.has_value()) {
      std::printf(" %7.2f", *ratio);
    } else {
      std::printf(" %7s", "-");
    }
  }
  std::printf("\n");
}

}  // namespace

void PrintTable(const std::vector<Result>& results) {
  const Result* block = nullptr;
  for (const Result& result : results) {
    if (block == nullptr || !SameBlock(*block, result)) {
      block = &result;
      const std::string title = result.transport + ", " + Size(result.bytes) +
                                ", " + std::to_string(result.in_flight) +
                                " in flight";
      std::printf("\n%-28s %6s %5s %8s %9s %9s %8s %8s %9s %8s %47s\n", "", "",
                  "", "", "", "", "server", "server", "server", "server",
                  "ratio to");
      std::printf(
          "%-28s %6s %5s %8s %9s %9s %8s %8s %9s %8s %7s %7s %7s %7s %7s %7s\n",
          title.c_str(), "GB/s", "+-", "calls/s", "p50 us", "p99 us",
          "cpu s/GB", "us/call", "faults/c", "peak MiB", "base", "+pass",
          "gen.", "empty", "tonic", "posenc");
    }
    PrintRow(results, result);
  }
}

bool WriteJson(const std::vector<Result>& results, const std::string& path) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Result& result : results) {
    nlohmann::json row = {{"case", result.name},
                          {"transport", result.transport},
                          {"bytes", result.bytes},
                          {"in_flight", result.in_flight}};
    if (!result.absent.empty()) {
      row["absent"] = result.absent;
      rows.push_back(row);
      continue;
    }
    row["gbps"] = Gbps(result);
    row["calls_per_second"] = Median(result.calls_per_second);
    row["spread"] = Spread(result);
    row["p50_us"] = kMicro * Percentile(result.latencies, 0.5);
    row["p99_us"] = kMicro * Percentile(result.latencies, 0.99);
    row["server_cpu_s_per_gb"] = CpuPerGb(result);
    row["faults_per_call"] = result.faults / result.calls;
    row["peak_resident_bytes"] = result.peak_resident_bytes;
    // One row for each ratio, or one row without a ratio.
    bool any = false;
    for (const char* const name : kReferences) {
      const std::optional<double> ratio = RatioTo(name, result, results);
      if (!ratio.has_value()) continue;
      row["ratio_to"] = name;
      row["ratio"] = *ratio;
      rows.push_back(row);
      any = true;
    }
    if (!any) {
      row["ratio_to"] = nullptr;
      row["ratio"] = nullptr;
      rows.push_back(row);
    }
  }
  std::ofstream file(path);
  file << rows.dump(1) << '\n';
  return static_cast<bool>(file.flush());
}

}  // namespace posenc::bench
