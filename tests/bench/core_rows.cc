#include "tests/bench/core_rows.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace posenc::bench {
namespace {

constexpr int kRounds = 15;

double Now(Clock clock) {
  timespec now;
  clock_gettime(
      clock == Clock::kThread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
      &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

double Seconds(const Work& work, int repeats, Clock clock) {
  const double start = Now(clock);
  for (int i = 0; i < repeats; ++i) work();
  return (Now(clock) - start) / repeats;
}

// Makes a measurement take at least some hundred microseconds, for the clock.
int Repeats(std::int64_t bytes) {
  return static_cast<int>(std::max<std::int64_t>(1, (8 << 20) / bytes));
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(
      q * static_cast<double>(values.size() - 1) + 0.5)];
}

std::string Size(std::int64_t bytes) {
  return bytes >= 1 << 20 ? std::to_string(bytes >> 20) + " MB"
                          : std::to_string(bytes >> 10) + " KB";
}

}  // namespace

void to_json(nlohmann::json& json, const CoreRow& row) {
  json = {{"case", row.name},         {"isa", row.isa},
          {"dtype", row.dtype},       {"pairing", row.pairing},
          {"layout", row.layout},     {"bytes", row.bytes},
          {"mode", row.mode},         {"gbps", row.gbps},
          {"ratio_to", row.ratio_to}, {"ratio", row.ratio},
          {"spread", row.spread}};
}

void from_json(const nlohmann::json& json, CoreRow& row) {
  json.at("case").get_to(row.name);
  json.at("isa").get_to(row.isa);
  json.at("dtype").get_to(row.dtype);
  json.at("pairing").get_to(row.pairing);
  json.at("layout").get_to(row.layout);
  json.at("bytes").get_to(row.bytes);
  json.at("mode").get_to(row.mode);
  json.at("gbps").get_to(row.gbps);
  json.at("ratio_to").get_to(row.ratio_to);
  json.at("ratio").get_to(row.ratio);
  json.at("spread").get_to(row.spread);
}

std::string Describe(const CoreRow& row) {
  std::string text = row.isa;
  for (const std::string& part : {row.dtype, row.pairing, row.layout, row.name,
                                  Size(row.bytes), row.mode}) {
    if (!part.empty()) text += " " + part;
  }
  return text;
}

namespace {

// Alternates `work` with only one other work, because a time includes writing
// back the data that the work before it left in the caches. 64 MB out of place
// took up to 1.5 times as long after memcpy as after a streaming copy (Xeon).
CoreRow CompareTo(const CoreRow& like, const Work& work,
                  const std::pair<std::string, Work>& other, Clock clock) {
  const int repeats = Repeats(like.bytes);
  std::vector<double> ratios, times;
  work();
  Seconds(other.second, repeats, clock);  // warms it up
  double before = Seconds(other.second, repeats, clock);
  for (int round = 0; round < kRounds; ++round) {
    const double time = Seconds(work, repeats, clock);
    const double after = Seconds(other.second, repeats, clock);
    times.push_back(time);
    ratios.push_back((before + after) / 2 / time);
    before = after;
  }
  CoreRow row = like;
  row.gbps = static_cast<double>(like.bytes) / Quantile(times, 0.5) / 1e9;
  row.ratio_to = other.first;
  row.ratio = Quantile(ratios, 0.5);
  row.spread = (Quantile(ratios, 0.75) - Quantile(ratios, 0.25)) / row.ratio;
  return row;
}

}  // namespace

std::vector<CoreRow> Compare(
    const CoreRow& like, const Work& work,
    const std::vector<std::pair<std::string, Work>>& others, Clock clock) {
  std::vector<CoreRow> rows;
  for (const auto& other : others) {
    rows.push_back(CompareTo(like, work, other, clock));
  }
  return rows;
}

const std::pair<std::string, Work>& Fastest(
    const std::vector<std::pair<std::string, Work>>& works,
    std::int64_t bytes) {
  std::vector<std::vector<double>> times(works.size());
  for (int round = 0; round < 5; ++round) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      times[i].push_back(
          Seconds(works[i].second, Repeats(bytes), Clock::kThread));
    }
  }
  std::size_t best = 0;
  for (std::size_t i = 1; i < works.size(); ++i) {
    if (Quantile(times[i], 0.5) < Quantile(times[best], 0.5)) best = i;
  }
  return works[best];
}

void PrintRow(const CoreRow& row) {
  std::printf(
      "%-12s %-13s %-12s %-12s %-24s %7s %-9s %8.2f  %6.2f x %-15s %3.0f%%\n",
      row.isa.c_str(), row.dtype.c_str(), row.pairing.c_str(),
      row.layout.c_str(), row.name.c_str(), Size(row.bytes).c_str(),
      row.mode.c_str(), row.gbps, row.ratio, row.ratio_to.c_str(),
      100 * row.spread);
  std::fflush(stdout);
}

}  // namespace posenc::bench
