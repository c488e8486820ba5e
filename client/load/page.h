// A report as one HTML page: tiles, charts and tables of a run, or two runs
// beside each other. Style and charts are in the file, which needs no script
// and no network: it can be mailed, kept as an artifact of CI, and read in ten
// years.

#pragma once

#include <string>

#include "client/load/report.h"

namespace posenc::load {

std::string ReportPage(const Json& report);

std::string ComparisonPage(const std::string& a_name, const Json& a,
                           const std::string& b_name, const Json& b);

}  // namespace posenc::load
