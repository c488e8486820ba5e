#include "tests/bench/rpc_report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "nlohmann/json.hpp"

namespace posenc::bench {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kMicro = 1e6;
// The servers that ratios refer to, if they were measured.
constexpr const char* kReferences[] = {"base", "base+pass", "generated sync",
                                       "empty"};

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const std::size_t index = std::min(
      values.size() - 1, static_cast<std::size_t>(part * values.size()));
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[index];
}

std::string Size(std::int64_t bytes) {
  if (bytes >= 1 << 30) return std::to_string(bytes >> 30) + " GiB";
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  return std::to_string(bytes >> 10) + " KiB";
}

bool SameBlock(const Result& a, const Result& b) {
  return a.transport == b.transport && a.bytes == b.bytes &&
         a.in_flight == b.in_flight;
}

double CpuPerGb(const Result& result) {
  return result.cpu_seconds / (result.calls * result.bytes / 1e9);
}

void PrintRow(const std::vector<Result>& results, const Result& result) {
  const std::string channels =
      result.in_flight > 1
          ? ", " + std::to_string(result.channels) +
                (result.channels > 1 ? " channels" : " channel")
          : "";
  std::printf("  %-26s", (result.name + channels).c_str());
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
    const Result* const to = Find(results, name, result);
    const std::optional<double> ratio =
        to == nullptr ? std::nullopt : Ratio(result, *to);
    if (ratio.has_value()) {
      std::printf(" %7.2f", *ratio);
    } else {
      std::printf(" %7s", "-");
    }
  }
  std::printf("\n");
}

struct Figure {
  const char* claim;
  const char* name;
  const char* to;
  const char* transport;
  std::int64_t bytes;
  int in_flight;
  double at_least;
  int channels = 1;
  int to_channels = 1;
};

constexpr std::int64_t kMega = 1 << 20;
constexpr Figure kFigures[] = {
    {"empty handler / base", "empty", "base", "tcp", kMega, 1, 0.95},
    {"empty handler / base", "empty", "base", "tcp", 16 * kMega, 1, 0.95},
    {"empty handler / base", "empty", "base", "tcp", 64 * kMega, 1, 0.95},
    {"unary / base+pass", "posenc", "base+pass", "tcp", 64 * kMega, 1, 0.95},
    {"unary / base+pass", "posenc", "base+pass", "tcp", 16 * kMega, 1, 0.85},
    {"unary / base+pass", "posenc", "base+pass", "unix", 64 * kMega, 1, 0.9},
    {"unary / generated sync", "posenc", "generated sync", "tcp", 64 * kMega, 1,
     3.5},
    {"unary / generated sync", "posenc", "generated sync", "tcp", 16 * kMega, 1,
     1.7},
    {"unary / tonic", "posenc", "tonic", "tcp", kMega, 1, 1.0},
    {"stream of 4 MiB chunks / unary", "posenc stream", "posenc", "tcp",
     64 * kMega, 1, 1.2},
    {"calls per second / empty handler", "posenc", "empty", "tcp", 4096, 64,
     0.95},
    {"four channels / one channel", "posenc", "posenc", "tcp", kMega, 4, 1.0, 4,
     1},
    {"shared in place / tcp", "posenc shared", "posenc", "tcp", kMega, 1, 3},
    {"shared in place / tcp", "posenc shared", "posenc", "tcp", 16 * kMega, 1,
     5},
    {"shared in place / tcp", "posenc shared", "posenc", "tcp", 64 * kMega, 1,
     5},
    {"shared in place / unix", "posenc shared", "posenc", "unix", 16 << 10, 1,
     1},
    {"shared in place / unix", "posenc shared", "posenc", "unix", 16 * kMega, 1,
     4},
    {"shared in place / unix", "posenc shared", "posenc", "unix", 64 * kMega, 1,
     4},
    {"shared in place / kernel", "posenc shared", "kernel in place", "unix",
     16 * kMega, 1, 0.8},
    {"shared in place / kernel", "posenc shared", "kernel in place", "unix",
     64 * kMega, 1, 0.8},
    {"ModelInfer / ApplyRope", "posenc kserve", "posenc", "unix", 16 * kMega, 1,
     0.9},
    {"ModelInfer / ApplyRope", "posenc kserve", "posenc", "unix", 64 * kMega, 1,
     0.9},
};

const Result* Find(const std::vector<Result>& results, const std::string& name,
                   const std::string& transport, std::int64_t bytes,
                   int in_flight, int channels) {
  Result like;
  like.transport = transport;
  like.bytes = bytes;
  like.in_flight = in_flight;
  like.channels = channels;
  return Find(results, name, like);
}

void PrintFigure(const std::string& claim, const std::string& wanted,
                 bool measured, double value, bool met) {
  std::printf("  %-52s %-12s", claim.c_str(), wanted.c_str());
  if (!measured) {
    std::printf("%10s\n", "-");
  } else {
    std::printf("%10.2f  %s\n", value, met ? "met" : "not met");
  }
}

// Peak resident memory, in MiB.
void PrintPeak(const std::string& claim, const Result* result, double at_most) {
  char wanted[32];
  std::snprintf(wanted, sizeof(wanted), "<= %.1f", at_most);
  const bool measured = result != nullptr && result->absent.empty();
  const double peak = measured ? result->peak_resident_bytes / kMiB : 0;
  PrintFigure(claim, wanted, measured, peak, peak <= at_most);
}

}  // namespace

double Median(std::vector<double> values) { return Percentile(values, 0.5); }

double Spread(const Result& result) {
  const auto [low, high] = std::minmax_element(result.calls_per_second.begin(),
                                               result.calls_per_second.end());
  return (*high - *low) / 2 / Median(result.calls_per_second);
}

double Gbps(const Result& result) {
  return Median(result.calls_per_second) * result.bytes / 1e9;
}

std::optional<double> Ratio(const Result& result, const Result& to) {
  if (!result.absent.empty() || !to.absent.empty()) return std::nullopt;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < result.calls_per_second.size(); ++i) {
    ratios.push_back(result.calls_per_second[i] / to.calls_per_second[i]);
  }
  return Median(ratios);
}

const Result* Find(const std::vector<Result>& results, const std::string& name,
                   const Result& like) {
  for (const Result& result : results) {
    if (result.name == name && SameBlock(result, like) &&
        result.channels == like.channels) {
      return &result;
    }
  }
  return nullptr;
}

void PrintTable(const std::vector<Result>& results) {
  const Result* block = nullptr;
  for (const Result& result : results) {
    if (block == nullptr || !SameBlock(*block, result)) {
      block = &result;
      const std::string title = result.transport + ", " + Size(result.bytes) +
                                ", " + std::to_string(result.in_flight) +
                                " in flight";
      std::printf("\n%-28s %6s %5s %8s %9s %9s %8s %8s %9s %8s %31s\n", "", "",
                  "", "", "", "", "server", "server", "server", "server",
                  "ratio to");
      std::printf("%-28s %6s %5s %8s %9s %9s %8s %8s %9s %8s %7s %7s %7s %7s\n",
                  title.c_str(), "GB/s", "+-", "calls/s", "p50 us", "p99 us",
                  "cpu s/GB", "us/call", "faults/c", "peak MiB", "base",
                  "+pass", "gen.", "empty");
    }
    PrintRow(results, result);
  }
}

void PrintFigures(const std::vector<Result>& results) {
  std::printf("\n%-54s %-12s%10s\n", "Figures", "wanted", "measured");
  for (const Figure& figure : kFigures) {
    const Result* const result =
        Find(results, figure.name, figure.transport, figure.bytes,
             figure.in_flight, figure.channels);
    const Result* const to =
        Find(results, figure.to, figure.transport, figure.bytes,
             figure.in_flight, figure.to_channels);
    if (result == nullptr || to == nullptr) continue;
    const std::optional<double> ratio = Ratio(*result, *to);
    char wanted[32];
    std::snprintf(wanted, sizeof(wanted), ">= %.2f", figure.at_least);
    PrintFigure(std::string(figure.claim) + ", " + figure.transport + ", " +
                    Size(figure.bytes),
                wanted, ratio.has_value(), ratio.value_or(0),
                ratio.value_or(0) >= figure.at_least);
  }
  const std::int64_t bytes = 64 * kMega;
  PrintPeak("server's peak MiB, unary, tcp, 64 MiB",
            Find(results, "posenc", "tcp", bytes, 1, 1),
            1.1 * 2 * bytes / kMiB + 64);
  PrintPeak("server's peak MiB, stream of 4 GiB",
            Find(results, "posenc stream", "tcp", std::int64_t{4} << 30, 1, 1),
            200);
}

bool WriteJson(const std::vector<Result>& results, const std::string& path) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Result& result : results) {
    nlohmann::json row = {{"case", result.name},
                          {"transport", result.transport},
                          {"bytes", result.bytes},
                          {"in_flight", result.in_flight},
                          {"channels", result.channels}};
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
    const auto add = [&](const char* name, const Result* to) {
      const std::optional<double> ratio =
          to == nullptr || to == &result ? std::nullopt : Ratio(result, *to);
      if (!ratio.has_value()) return;
      row["ratio_to"] = name;
      row["ratio"] = *ratio;
      rows.push_back(row);
      any = true;
    };
    for (const char* const name : kReferences) {
      add(name, Find(results, name, result));
    }
    for (const char* const name : {"tonic", "posenc"}) {
      add(name, Find(results, name, result));
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
