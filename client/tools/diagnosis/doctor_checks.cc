#include "client/tools/diagnosis/doctor_checks.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/tools/files/print.h"
#include "core/doctor/finding.h"
#include "nlohmann/json.hpp"

namespace posenc::cli {
namespace {

// Returns a row's text, with "..." instead of a finding's values.
std::string WithoutValues(absl::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$' && i + 1 < text.size()) {
      plain += "...";
      ++i;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

std::string SeverityText(const core::doctor::CheckRow& row) {
  return row.by_size ? "by size"
                     : std::string(core::doctor::SeverityName(row.severity));
}

}  // namespace

void PrintDoctorChecks(bool json) {
  if (!json) {
    for (const core::doctor::CheckRow& row : core::doctor::CheckRows()) {
      absl::PrintF("%-8s %s\n         %s\n         fix: %s\n",
                   SeverityText(row), row.id, row.finds,
                   WithoutValues(row.fix));
    }
    return;
  }
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const core::doctor::CheckRow& row : core::doctor::CheckRows()) {
    const std::vector<std::string> see =
        absl::StrSplit(row.see, "; ", absl::SkipEmpty());
    checks.push_back({{"id", row.id},
                      {"severity", SeverityText(row)},
                      {"finds", row.finds},
                      {"fix", WithoutValues(row.fix)},
                      {"see", see}});
  }
  PrintJson({{"checks", checks}});
}

}  // namespace posenc::cli
