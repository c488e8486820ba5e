// Replays what transformers answered (record.py) against core/interpretation.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::parity {

// What transformers rotates layers of one type by.
struct Answer {
  // Both absent: of every layer.
  std::optional<std::string> layer_type;
  std::optional<std::int32_t> layer_index;
  std::vector<float> inv_freq;
  double attention_factor = 1;
  // What the class states beside them; empty and 0 if it does not.
  std::vector<std::int32_t> sections;
  std::string pairing;  // "half", "interleaved"
  std::int64_t length = 0;
};

// A configuration, and what transformers made of it.
struct Case {
  std::string group;
  std::string model_type;
  std::string name;  // of its spelling, or of its damage
  std::string config_json;
  std::vector<Answer> answers;
  std::string error;  // not empty: transformers raised this
};

struct Record {
  std::string versions;
  std::vector<Case> cases;
};

// Errors: INVALID_ARGUMENT, and the line, if `path` is no record.
absl::StatusOr<Record> ReadRecord(const std::string& path);

// What posenc does where transformers answers, and where it raises.
enum class Outcome {
  kAgrees,         // the same answer, no warning
  kAgreesWarned,   // the same answer, and a warning
  kDiffersWarned,  // another answer, and a warning
  kDiffersSilent,  // another answer
  kRefuses,        // an error
  kBothRefuse,     // transformers raises, and posenc refuses
  kAnswersWarned,  // transformers raises, posenc answers and warns
  kAnswersSilent,  // transformers raises, posenc answers
  kWrongStatus,    // an error that is not INVALID_ARGUMENT
};
inline constexpr int kOutcomes = 9;

absl::string_view OutcomeName(Outcome outcome);

struct Finding {
  Outcome outcome;
  std::string why;  // the difference, the warnings or the error
  std::vector<std::string> warnings = {};
};

// True if some warning names a key, of the file or of those that it lacks, and
// says what transformers makes of it beside what is done here.
bool SaysBothReadings(const std::string& config_json,
                      const std::vector<std::string>& warnings);

// Of several layer types, the worst.
Finding Examine(const Case& one);

}  // namespace posenc::parity
