// What a run came to, as JSON and as text. The JSON is the report: the text,
// the page and comparisons are made from it.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/load/engine.h"
#include "nlohmann/json.hpp"

namespace posenc::load {

using Json = nlohmann::ordered_json;

// {"p50": 210.5, ..., "percentiles": [[0, 100.1], ...]}, in microseconds.
Json LatencyJson(const Histogram& histogram);

// One entry of a step's "series".
Json PointJson(const Interval& interval);

// One entry of "steps".
Json StepJson(const std::string& label, const StepResult& result,
              const std::vector<Case>& workload, Json series);

// The live line of a terminal.
std::string ProgressLine(const std::string& label, const Interval& interval);

// Table of the steps, errors and wrong answers, and cases where there are
// several.
std::string ReportText(const Json& report);

// Step by step, matched by label: a, b and b / a. The first steps of each are
// compared where no label matches.
std::string ComparisonText(const std::string& a_name, const Json& a,
                           const std::string& b_name, const Json& b);

struct StepPair {
  const Json* a;
  const Json* b;
};
std::vector<StepPair> MatchSteps(const Json& a, const Json& b);

// Errors: NOT_FOUND where it cannot be read, DATA_LOSS where it is no report.
absl::StatusOr<Json> ReadReport(const std::string& path);
absl::Status WriteFile(const std::string& path, const std::string& text);

}  // namespace posenc::load
