#include "client/tools/diagnosis/doctor_checks.h"

#include <cstddef>
#include <cstdio>
#include <string>

#include "absl/strings/str_format.h"
#include "client/tools/files/print.h"
#include "core/doctor/finding.h"
#include "nlohmann/json.hpp"

namespace posenc::cli {
namespace {

std::string SeverityText(const core::doctor::CheckRow& row) {
  return row.by_size ? "by size"
                     : std::string(core::doctor::SeverityName(row.severity));
}

// Returns a finding of the check, with "..." instead of values.
core::doctor::Finding AnyFinding(const core::doctor::CheckRow& row) {
  constexpr std::size_t kMostValues = 10;
  return core::doctor::MakeFinding(row.id,
                                   core::doctor::Values(kMostValues, "..."));
}

}  // namespace

void PrintDoctorChecks(bool json) {
  if (!json) {
    for (const core::doctor::CheckRow& row : core::doctor::CheckRows()) {
      absl::PrintF("%-8s %s\n         %s\n         fix: %s\n",
                   SeverityText(row), row.id, row.finds, AnyFinding(row).fix);
    }
    return;
  }
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const core::doctor::CheckRow& row : core::doctor::CheckRows()) {
    checks.push_back({{"id", row.id},
                      {"severity", SeverityText(row)},
                      {"finds", row.finds},
                      {"fix", AnyFinding(row).fix},
                      {"see", AnyFinding(row).see}});
  }
  PrintJson({{"checks", checks}});
}

}  // namespace posenc::cli
