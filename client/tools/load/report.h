// The report of a run, as JSON, which --json writes. The text on the screen and
// the HTML page are made only from this JSON. Keys are part of the interface.
// Latencies are microseconds, rates are per second, GB are 10^9 bytes.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/tools/load/engine.h"
#include "nlohmann/json.hpp"

namespace posenc::load {

using Json = nlohmann::ordered_json;

// Returns an entry of a step's "series": the numbers of about one second.
Json PointJson(const Interval& interval);

// Returns an entry of the report's "steps".
Json StepJson(const std::string& label, const StepResult& result,
              const std::vector<Case>& workload, Json series);

// Returns an entry of the report's "overload": the results of a load of
// `multiple` times the peak.
Json OverloadJson(double multiple, double peak, const StepResult& result);

// Returns the line that a terminal shows every second during a step.
std::string ProgressLine(const std::string& label, const Interval& interval);

// Returns a table of the steps, then errors and wrong answers. If a step has
// several cases, its cases follow it in the table.
std::string ReportText(const Json& report);

// Returns one HTML page with tiles, charts and tables of a run. The page has
// the report as JSON, a style sheet and the script that draws the report
// (page.html). The page loads no other file, so it can be mailed or kept as an
// artifact of CI.
std::string ReportPage(const Json& report);

absl::Status WriteFile(const std::string& path, const std::string& text);

}  // namespace posenc::load
