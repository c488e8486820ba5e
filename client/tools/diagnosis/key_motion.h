// Compares the keys of one layer in two files, before and after a move.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/tools/check/rotated_heads.h"
#include "core/rope/frequencies.h"

namespace posenc::cli {

// A move that may explain what an engine did: a rotation by `shift` positions.
struct Motion {
  check::TokenRotation rotation;
  std::int64_t shift = 0;
};

// Returns the move by `shift` under an encoding, for heads of head_dim
// channels.
Motion MotionOf(const core::ResolvedRope& rope, std::int64_t head_dim,
                std::int64_t shift);

// The allowed error of a pair.
struct MotionBound {
  double ulps = 0;              // of the pair's length, in the keys' dtype
  double angle_unit = 0x1p-24;  // relative rounding error of an engine's angles
};

// Bounds in ulps that depend on the keys' dtype.
struct Bounds {
  // The bound without --dtype-bound, for engines that compute cosines and sines
  // in float32, or in float64 if the keys are float64.
  double usual;
  // The bound for engines whose tables have a lower precision than `usual`
  // assumes, and the dtype of these tables.
  double coarser;
  std::string coarser_dtype;
};

Bounds BoundsOf(v1::Dtype dtype);

// Returns a bound of `ulps` for keys of this dtype. The bound assumes that the
// engine computes angles in float32. If the keys are float64 and `ulps` is too
// small for float32 tables, the bound assumes float64.
MotionBound BoundOf(v1::Dtype dtype, double ulps);

// The error of keys after a move, compared with the exact move.
struct MotionError {
  double max_ulps = 0;   // over all pairs and heads
  double max_bound = 0;  // the largest bound of a pair
  bool within = true;    // every pair is within its own bound
  // Numbers of tokens and of heads with a pair beyond its bound, and the first
  // such token and its head.
  std::int64_t tokens = 0, heads = 0;
  std::int64_t first_token = 0, first_head = 0;
};

// Compares `after` with `before` moved by `motion`. The allowed error of a pair
// is bound.ulps plus the error of an engine's angles. Relative to the pair's
// length, the error of the angles is w u (2 p_max + (4 + |ln w|) shift). Here w
// is the pair's frequency, u is bound.angle_unit, and p_max is the largest
// position. The product of position and frequency is rounded once at each of
// the two positions. The frequency base^-x has a relative error of |ln w| u
// from the rounding of x, and of 4 u from the roundings of power, division and
// scaling. Tokens after the first `most_tokens` are skipped.
MotionError Measure(const Motion& motion, const check::HeadsView& before,
                    const check::HeadsView& after, const MotionBound& bound,
                    double p_max, std::int64_t most_tokens);

// Returns the angle by which each pair of `layout` was rotated, modulo 2 pi:
// atan2(sum cross, sum dot) over tokens and heads.
std::vector<double> MeasuredAngles(const check::PairLayout& layout,
                                   const check::HeadsView& before,
                                   const check::HeadsView& after);

// Returns the largest difference between the measured `angles` and the angles
// of the motion, modulo 2 pi. Sets `worst` to the pair with this
// difference.
double AngleError(const Motion& motion, const std::vector<double>& angles,
                  std::size_t* worst = nullptr);

bool HasNotFinite(const check::HeadsView& heads);

}  // namespace posenc::cli
