// How two interpretations of a rotary encoding differ, in numbers and words.
//
// core/rope/kept.h has the formula for the effect on attention.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/rope/frequencies.h"
#include "core/rope/kept.h"

namespace posenc::core::interpretation {

// The same numbers as in posenc.v1.RopeDifference.
struct RopeDifference {
  bool equal = true;
  double max_relative_frequency_difference = 0;
  std::int32_t worst_pair = 0;
  double attention_factor_ratio = 1;  // b's attention factor / a's
  std::int64_t first_diverging_position = -1;
  std::vector<std::string> explanations;
  // Differences of scores, set by CompareScores.
  std::int64_t first_distance = -1;
  double kept_at_length = 1;
  std::int64_t length = 0;
};

// Upper bound on the distance at which scores are compared.
inline constexpr std::int64_t kMaxComparedLength = std::int64_t{1} << 31;
// Largest number of frequencies of an encoding in a comparison of scores. Each
// frequency needs a sine and a cosine at up to 8192 distances.
inline constexpr std::size_t kMaxComparedFrequencies = 65536;
// The default of CompareScores' `length`.
inline constexpr std::int64_t kDefaultComparedLength = 8192;

// Describes the scaling in a few words, for example "no scaling" or "linear by
// 8".
std::string ScalingText(const RopeSpec& spec);

RopeDifference CompareRopes(const ResolvedRope& a, const ResolvedRope& b);

// Compares scores at distances up to `length` (1 to kMaxComparedLength), and
// fills in the fields about scores. If an encoding has more than
// kMaxComparedFrequencies frequencies, returns FIELD_INVALID with the field
// "compare_with". If `stop` returns an error, returns that error.
absl::Status CompareScores(const ResolvedRope& a, const ResolvedRope& b,
                           std::int64_t length, const StopAsked& stop,
                           RopeDifference* difference);

}  // namespace posenc::core::interpretation
