// How keys of one layer moved between two files.

#pragma once

#include <cstdint>
#include <vector>

#include "client/check/rotated_heads.h"
#include "core/rope/frequencies.h"

namespace posenc::cli {

// A move that may explain what an engine did.
struct Motion {
  std::vector<double> frequencies;  // radians a position, by pair
  check::PairLayout layout;
  std::int64_t shift = 0;
  double amplitude = 1;
};

// The move by `shift` under an encoding, for heads of head_dim channels.
Motion MotionOf(const core::ResolvedRope& rope, std::int64_t head_dim,
                std::int64_t shift);

struct MotionError {
  double max_ulps = 0;   // over all pairs and heads
  double max_bound = 0;  // the largest bound
  bool within = true;    // every pair's own bound holds
};

// Holds `after` to the motion of `before`. p_max is the largest position.
// Tokens are skipped beyond the first `most_tokens`.
MotionError Measure(const Motion& motion, const check::HeadsView& before,
                    const check::HeadsView& after, double bound_ulps,
                    double p_max, std::int64_t most_tokens);

// The angle by which each pair turned, atan2(sum cross, sum dot) over tokens
// and heads: known modulo 2 pi.
std::vector<double> MeasuredAngles(const check::PairLayout& layout,
                                   const check::HeadsView& before,
                                   const check::HeadsView& after);

// The largest distance of measured angles from those of the motion, on the
// circle.
double AngleError(const Motion& motion, const std::vector<double>& angles);

// True if a value of the tensor is NaN or infinite.
bool HasNotFinite(const check::HeadsView& heads);

}  // namespace posenc::cli
