// Findings of doctor. Each finding has a stable id, a severity, a message with
// the values that differ, and a fix.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/text.h"

namespace posenc::core::doctor {

// posenc.v1.Severity has the same numbers.
enum class Severity { kError = 1, kWarning = 2, kNote = 3 };

absl::string_view SeverityName(Severity severity);

// How much one reader differs from the reference.
struct Verdict {
  std::string name;  // the reader's full name, such as "mlx-lm"
  std::string says;  // the reader's version, and its reading of the input
  // The least distance at which less than 90 % of a score is kept
  // (core/rope/kept.h); -1 if there is no such distance up to the compared
  // length.
  std::int64_t first_distance = -1;
  double kept_at_length = 1;      // share kept at the compared length
  std::int64_t first_angle = -1;  // RopeDifference.first_diverging_position
  double amplitude_ratio = 1;     // the reader's amplitude / the reference's
  std::int32_t worst_pair = -1;   // -1: frequencies are the same
  // The least share of a score that is kept at any distance up to the compared
  // length. --json does not print this share.
  double least_kept = 1;
};

struct Finding {
  std::string id;
  Severity severity = Severity::kNote;
  std::string message;  // one line of at most 400 bytes
  std::string fix;      // never empty
  std::vector<std::string> inputs;
  std::vector<std::string> keys;
  std::optional<std::vector<std::int32_t>> layers;  // nullopt: all
  std::vector<Verdict> readers;
  std::vector<std::string> see;
};

// A value for $0, $1, ... in a check's texts. PlainNumber() converts
// floating-point numbers to text.
struct Value {
  template <typename T>
  Value(const T& value) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_floating_point_v<T>) {
      text = PlainNumber(value);
    } else {
      text = absl::StrCat(value);
    }
  }
  std::string text;
};
using Values = std::vector<Value>;

// One row of data for each check (rows/checks.json). $0, $1, ... in the texts
// stand for values.
struct CheckRow {
  absl::string_view id;
  Severity severity;
  bool by_size = false;     // see AddFinding()
  bool always = false;      // reported for any choice of readers
  absl::string_view finds;  // what the check looks for, in a few words
  absl::string_view message;
  absl::string_view fix;
  absl::string_view see = {};  // public threads, separated by "; "
};

// Returns null if no check has that id.
const CheckRow* FindCheck(absl::string_view id);
absl::Span<const CheckRow> CheckRows();

// Returns the text of a row of rows/says.json with `values` filled in. These
// rows are for checks whose findings have several causes or fixes. A row with
// this id must exist.
std::string Say(absl::string_view id, const Values& values);

// Returns the finding that a row of rows/checks.json describes, with `values`
// filled in. A row with this id must exist. Control characters of values are
// escaped, and long messages are cut.
Finding MakeFinding(absl::string_view id, const Values& values);

// Appends the result of MakeFinding() to `findings`. If by_size is true in the
// row, the finding gets the most serious severity of the row and of the
// verdicts in `readers` (SeverityOf()).
Finding& AddFinding(absl::string_view id, const Values& values,
                    std::vector<std::string> inputs,
                    std::vector<std::string> keys,
                    std::vector<Finding>* findings,
                    std::vector<Verdict> readers = {});

// Returns how severe a difference is. A difference is an error if less than 90
// % of a score is kept at some distance up to the compared length, or if logits
// are off by more than 5 %. A difference is a warning if less than 99 % is
// kept, or if logits are off by more than 0.5 %. Any other difference is a
// note.
Severity SeverityOf(const Verdict& verdict);
// Returns the severity of a difference that is only in the amplitude.
// `amplitude_ratio` is the reader's amplitude divided by the reference's
// amplitude.
Severity SeverityOf(double amplitude_ratio);

}  // namespace posenc::core::doctor
