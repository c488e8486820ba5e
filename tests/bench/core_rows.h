// The rows of `./run bench core`: measurements, each with its reference.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace posenc::bench {

struct CoreRow {
  std::string name;  // "64 MB", "table 131072 x 64"
  std::string isa;   // GetServerInfo's name for it
  std::string dtype;
  std::string pairing;
  std::string layout;      // empty for tables
  std::int64_t bytes = 0;  // bytes of the input, or of the output
  std::string mode;        // out, in_place, table
  double gbps = 0;         // `bytes` divided by the time
  std::string ratio_to;
  double ratio = 0;   // above 1: posenc is faster
  double spread = 0;  // range of the middle half of the ratios, divided by
                      // their median
};

void to_json(nlohmann::json& json, const CoreRow& row);
void from_json(const nlohmann::json& json, CoreRow& row);

// Returns the text that --filter searches, for example "avx512 float32
// half_split token_major 64 MB out".
std::string Describe(const CoreRow& row);

using Work = std::function<void()>;

enum class Clock {
  // The thread's CPU time, because other programs may use the machine. Their
  // effect on caches and memory is the same on both sides of a ratio.
  kThread,
  kWall,  // elapsed time, for work on several threads
};

// Times `work` alternately with each of `others`, and returns a row like `like`
// for each of them. `bytes` counts the bytes of one call.
std::vector<CoreRow> Compare(
    const CoreRow& like, const Work& work,
    const std::vector<std::pair<std::string, Work>>& others, Clock clock);

// Returns the work with the least median time of a few calls.
const std::pair<std::string, Work>& Fastest(
    const std::vector<std::pair<std::string, Work>>& works, std::int64_t bytes);

void PrintRow(const CoreRow& row);

}  // namespace posenc::bench
