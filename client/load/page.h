// A report as one HTML page: tiles, charts and tables of a run, or of two runs
// side by side. The file has the report as JSON, a style sheet and the script
// that draws it (page.html). It loads nothing, and can be mailed or kept as an
// artifact of CI.

#pragma once

#include <string>

#include "client/load/report.h"

namespace posenc::load {

std::string ReportPage(const Json& report);

std::string ComparisonPage(const std::string& a_name, const Json& a,
                           const std::string& b_name, const Json& b);

}  // namespace posenc::load
