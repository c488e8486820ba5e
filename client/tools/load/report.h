// The report of a run, as JSON, which --json writes. The text on the screen,
// the HTML page and comparisons are made only from this JSON, so that old
// reports can be shown, too. Keys are part of the interface. Latencies are
// microseconds, rates are per second, GB are 10^9 bytes.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/tools/load/engine.h"
#include "nlohmann/json.hpp"

namespace posenc::load {

using Json = nlohmann::ordered_json;

// Returns an entry of a step's "series": the numbers of about a second.
Json PointJson(const Interval& interval);

// Returns an entry of the report's "steps".
Json StepJson(const std::string& label, const StepResult& result,
              const std::vector<Case>& workload, Json series);

// Returns an entry of the report's "overload": the results of a load of
// `multiple` times the peak.
Json OverloadJson(double multiple, double peak, const StepResult& result);

// Returns the line that a terminal shows every second during a step.
std::string ProgressLine(const std::string& label, const Interval& interval);

// Returns a table of the steps, each followed by its cases if there are
// several, then errors and wrong answers.
std::string ReportText(const Json& report);

// Compares two reports step by step: a, b and b / a. Compares steps with equal
// labels ("16 in flight"), or the first steps if no labels are equal.
std::string ComparisonText(const std::string& a_name, const Json& a,
                           const std::string& b_name, const Json& b);

// Return one HTML page with tiles, charts and tables of a run, or of two runs
// side by side. The page has the reports as JSON, a style sheet and the script
// that draws the reports (page.html). It loads nothing, and can be mailed or
// kept as an artifact of CI.
std::string ReportPage(const Json& report);
std::string ComparisonPage(const std::string& a_name, const Json& a,
                           const std::string& b_name, const Json& b);

// Reads a file that --json wrote. NOT_FOUND if it cannot be read, DATA_LOSS if
// it is not a report.
absl::StatusOr<Json> ReadReport(const std::string& path);
absl::Status WriteFile(const std::string& path, const std::string& text);

}  // namespace posenc::load
