// Numbers for plots of a rotary encoding, and for choosing a base.
//
//   wavelengths[i] = 2 pi / w_i (infinity where w_i is 0)
//   decay(s)      = mean over n = 1..d/2 of |sum_(m < n) exp(i s w_m)|
//   similarity(s) = mean over pairs of cos(s w_i)
//
// (RoFormer, arXiv:2104.09864, 3.4.3), in float64 from exactly reduced angles.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/rope/frequencies.h"

namespace posenc::core {

// Most distances that are evaluated in one call.
inline constexpr std::int64_t kMaxDistances = 65536;

struct RopeAnalysis {
  std::vector<double> wavelengths;  // [d/2]
  std::vector<double> decay;        // at 0, distance_step, ... max_distance
  std::vector<double> similarity;   // likewise
  // Pairs that complete a turn in the trained length; 0 where it is not known.
  std::int32_t pairs_within_trained_length = 0;
};

using StopAnalysis = std::function<absl::Status()>;

// distance_step 0: 1. trained_length 0: rope.trained_length. stop, asked at
// each distance: what is not OK ends the analysis. Field paths: "rope" (several
// axes, frequencies by head, NoPE), "max_distance", "distance_step",
// "trained_length".
absl::StatusOr<RopeAnalysis> AnalyzeRope(const ResolvedRope& rope,
                                         std::int64_t max_distance,
                                         std::int64_t distance_step,
                                         std::int64_t trained_length,
                                         const StopAnalysis& stop = nullptr);

}  // namespace posenc::core
