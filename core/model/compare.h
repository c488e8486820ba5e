// How two interpretations of a rotary encoding differ, in numbers and words.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/rope/frequencies.h"

namespace posenc::core {

// Numbers as posenc.v1.RopeDifference.
struct RopeDifference {
  bool equal = true;
  double max_relative_frequency_difference = 0;
  std::int32_t worst_pair = 0;
  double attention_factor_ratio = 1;  // b's over a's
  std::int64_t first_diverging_position = -1;
  std::vector<std::string> explanations;
};

// The scaling in a few words: "none", "linear by 8".
std::string ScalingText(const RopeSpec& spec);

RopeDifference CompareRopes(const ResolvedRope& a, const ResolvedRope& b);

}  // namespace posenc::core
