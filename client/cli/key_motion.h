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

// What a pair may be off by.
struct MotionBound {
  double ulps = 0;              // of the pair's length, in the keys' dtype
  double angle_unit = 0x1p-24;  // that an engine's angles are rounded to
};

struct MotionError {
  double max_ulps = 0;   // over all pairs and heads
  double max_bound = 0;  // the largest bound
  bool within = true;    // every pair's own bound holds
  // Tokens and heads with a pair that is beyond it, and the first of them.
  std::int64_t tokens = 0, heads = 0;
  std::int64_t first_token = 0, first_head = 0;
};

// Holds `after` to the motion of `before`: a pair may be off by bound.ulps, and
// by what an engine's angles are, w u (2 p_max + (4 + |ln w|) shift) of its
// length, where u is bound.angle_unit. p_max is the largest position: each of
// the two products p w is rounded once. A frequency base^-x is off by |ln w| u
// of itself from the rounding of x, and by four roundings of power, division
// and scaling. Tokens are skipped beyond the first `most_tokens`.
MotionError Measure(const Motion& motion, const check::HeadsView& before,
                    const check::HeadsView& after, const MotionBound& bound,
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
