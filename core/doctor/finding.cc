#include "core/doctor/finding.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/text.h"

namespace posenc::core::doctor {
namespace {

constexpr std::size_t kMaxMessage = 400;

constexpr CheckRow kRows[] = {
#include "checks.inc"
};

std::string Fill(absl::string_view text,
                 const std::vector<std::string>& values) {
  std::string filled;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$' && i + 1 < text.size() && text[i + 1] >= '0' &&
        text[i + 1] <= '9') {
      const auto index = static_cast<std::size_t>(text[++i] - '0');
      if (index < values.size()) filled += values[index];
    } else {
      filled.push_back(text[i]);
    }
  }
  return filled;
}

}  // namespace

absl::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    default:
      return "note";
  }
}

bool Refuses(const Verdict& verdict) {
  return absl::StrContains(verdict.says, " refuses: ");
}

absl::Span<const CheckRow> CheckRows() { return kRows; }

const CheckRow* FindCheck(absl::string_view id) {
  for (const CheckRow& row : CheckRows()) {
    if (row.id == id) return &row;
  }
  return nullptr;
}

Finding MakeFinding(absl::string_view id,
                    const std::vector<std::string>& values) {
  const CheckRow* const row = FindCheck(id);
  if (row == nullptr) std::abort();  // a misspelt id in our own code
  Finding finding;
  finding.id = std::string(row->id);
  finding.severity = row->severity;
  finding.message = OneLine(Fill(row->message, values), kMaxMessage);
  finding.fix = OneLine(Fill(row->fix, values), 4 * kMaxMessage);
  finding.see = absl::StrSplit(row->see, "; ", absl::SkipEmpty());
  return finding;
}

Finding& AddFinding(absl::string_view id,
                    const std::vector<std::string>& values,
                    std::vector<std::string> inputs,
                    std::vector<std::string> keys,
                    std::vector<Finding>* findings) {
  Finding& finding = findings->emplace_back(MakeFinding(id, values));
  finding.inputs = std::move(inputs);
  finding.keys = std::move(keys);
  return finding;
}

Severity SeverityOf(const Verdict& verdict) {
  const double logits =
      std::abs(verdict.amplitude_ratio * verdict.amplitude_ratio - 1);
  // NaN counts as an error, too.
  if (verdict.first_distance >= 0 || !(logits <= 0.05)) {
    return Severity::kError;
  }
  if (verdict.least_kept < 0.99 || logits > 0.005) return Severity::kWarning;
  return Severity::kNote;
}

void JudgeBySize(Finding* finding) {
  finding->severity = Severity::kNote;
  for (const Verdict& verdict : finding->readers) {
    finding->severity = std::min(finding->severity, SeverityOf(verdict));
  }
}

}  // namespace posenc::core::doctor
