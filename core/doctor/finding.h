// What doctor has to say: findings, each with a stable id, a severity, both
// values, and a fix.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/text.h"

namespace posenc::core::doctor {

// Numbered as posenc.v1.Severity.
enum class Severity { kError = 1, kWarning = 2, kNote = 3 };

absl::string_view SeverityName(Severity severity);

// How far one reader is from the reference.
struct Verdict {
  std::string name;  // spelled out: "mlx-lm"
  std::string says;  // its version, and what it makes of the input
  // kept.h: the least distance with less than 90 % of a score, -1 for none; and
  // what is left at the claimed length.
  std::int64_t first_distance = -1;
  double kept_at_length = 1;
  std::int64_t first_angle = -1;  // RopeDifference.first_diverging_position
  double amplitude_ratio = 1;     // the reader's over the reference's
  std::int32_t worst_pair = -1;   // -1: frequencies are the same
  // Beside the contract of --json: the least that is kept within the length.
  double least_kept = 1;
};

// True if the reader has no answer at all: it `says` that it refuses.
bool Refuses(const Verdict& verdict);

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

// One row of data for each check (rows/checks.json). $0, $1, ... in the texts
// stand for values.
struct CheckRow {
  absl::string_view id;
  Severity severity;
  bool by_size = false;     // the readers decide (SeverityOf)
  absl::string_view finds;  // what it looks for, in a few words
  absl::string_view message;
  absl::string_view fix;
  absl::string_view see = {};  // threads that show it, separated by "; "
};

// Null if there is no check of that id.
const CheckRow* FindCheck(absl::string_view id);
absl::Span<const CheckRow> CheckRows();

// The finding of a row with its values filled in. The row must exist. Control
// characters of values are escaped, and long messages are cut.
Finding MakeFinding(absl::string_view id,
                    const std::vector<std::string>& values);

// The same, at the end of `findings`.
Finding& AddFinding(absl::string_view id,
                    const std::vector<std::string>& values,
                    std::vector<std::string> inputs,
                    std::vector<std::string> keys,
                    std::vector<Finding>* findings);

// Severity by size: an error if less than 90 % of a score is left somewhere
// within the length, or logits are off by more than 5 %; a warning from 1 % and
// 0.5 % on; else a note.
Severity SeverityOf(const Verdict& verdict);

// The same for a finding whose row is by size: its worst reader's.
void JudgeBySize(Finding* finding);

}  // namespace posenc::core::doctor
