// Replays transformers' answers (record.py) against core/interpretation.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::parity {

// transformers' rotation of layers of one type.
struct Answer {
  // If both are absent, the answer is for every layer.
  std::optional<std::string> layer_type;
  std::optional<std::int32_t> layer_index;
  std::vector<float> inv_freq;
  double attention_factor = 1;
  // The values that the class gives in addition to its frequencies; empty or 0
  // if the class does not give them.
  std::vector<std::int32_t> sections;
  std::string pairing;  // "half", "interleaved"
  std::int64_t length = 0;
};

// A configuration, and transformers' result.
struct Case {
  std::string group;
  std::string model_type;
  std::string name;  // its spelling, or its damage
  std::string config_json;
  std::vector<Answer> answers;
  std::string error;  // not empty: transformers raised this
};

struct Record {
  std::string versions;
  std::vector<Case> cases;
};

// Returns INVALID_ARGUMENT, with the line, if `path` is no record.
absl::StatusOr<Record> ReadRecord(const std::string& path);

// posenc's result compared with transformers'.
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

// True if some warning names a key that the file has or lacks, and states how
// transformers and how posenc read it.
bool SaysBothReadings(const std::string& config_json,
                      const std::vector<std::string>& warnings);

// Returns the worst outcome of a case's layer types.
Finding Examine(const Case& one);

}  // namespace posenc::parity
