// A report, or the difference of two, as one HTML page that needs nothing else.

#pragma once

#include <string>

#include "client/load/report.h"

namespace posenc::load {

std::string ReportPage(const Json& report);

std::string ComparisonPage(const std::string& a_name, const Json& a,
                           const std::string& b_name, const Json& b);

}  // namespace posenc::load
