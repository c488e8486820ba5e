#include "core/doctor/finding.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "core/base/text.h"

namespace posenc::core::doctor {
namespace {

constexpr std::size_t kMaxMessage = 400;

constexpr CheckRow kRows[] = {
#include "checks.inc"
};

struct SayRow {
  absl::string_view id, text;
};
constexpr SayRow kSays[] = {
#include "says.inc"
};

template <typename Row>
const Row* RowOf(absl::string_view id, absl::Span<const Row> rows) {
  const auto row = std::ranges::find(rows, id, &Row::id);
  return row == rows.end() ? nullptr : &*row;
}

// Replaces $0 to $9 by values. Removes a $n that has no value.
std::string Fill(absl::string_view text, const Values& values) {
  std::string filled;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool marks = text[i] == '$' && i + 1 < text.size() &&
                       absl::ascii_isdigit(text[i + 1]);
    if (!marks) {
      filled.push_back(text[i]);
    } else if (const std::size_t n = text[++i] - '0'; n < values.size()) {
      filled += values[n].text;
    }
  }
  return filled;
}

}  // namespace

absl::string_view SeverityName(Severity severity) {
  return severity == Severity::kError     ? "error"
         : severity == Severity::kWarning ? "warning"
                                          : "note";
}

absl::Span<const CheckRow> CheckRows() { return kRows; }

const CheckRow* FindCheck(absl::string_view id) {
  return RowOf(id, CheckRows());
}

std::string Say(absl::string_view id, const Values& values) {
  const auto* const row = RowOf(id, absl::MakeConstSpan(kSays));
  if (row == nullptr) std::abort();  // a misspelt id in our own code
  return Fill(row->text, values);
}

Finding MakeFinding(absl::string_view id, const Values& values) {
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

Finding& AddFinding(absl::string_view id, const Values& values,
                    std::vector<std::string> inputs,
                    std::vector<std::string> keys,
                    std::vector<Finding>* findings,
                    std::vector<Verdict> readers) {
  Finding& finding = findings->emplace_back(MakeFinding(id, values));
  finding.inputs = std::move(inputs);
  finding.keys = std::move(keys);
  finding.readers = std::move(readers);
  if (!FindCheck(id)->by_size) return finding;
  for (const Verdict& verdict : finding.readers) {
    finding.severity = std::min(finding.severity, SeverityOf(verdict));
  }
  return finding;
}

Severity SeverityOf(const Verdict& verdict) {
  if (verdict.first_distance >= 0) return Severity::kError;
  return std::min(SeverityOf(verdict.amplitude_ratio), verdict.least_kept < 0.99
                                                           ? Severity::kWarning
                                                           : Severity::kNote);
}

Severity SeverityOf(double amplitude_ratio) {
  const double logits = std::abs(amplitude_ratio * amplitude_ratio - 1);
  // A ratio of NaN is an error, too.
  if (!(logits <= 0.05)) return Severity::kError;
  return logits > 0.005 ? Severity::kWarning : Severity::kNote;
}

}  // namespace posenc::core::doctor
