// Rotary position embedding by the formula in posenc/v1/rope.proto: the
// rotation of a pair of channels, and the channels of each pair in a head.
// `posenc check`, posenc-load --verify and the tests compare the server's
// answers with this reference.
//
// A reference must share no code with the code that it checks. This file
// therefore includes nothing of core/ and server/, and they must not include
// this file. The code follows the formula and is not fast. The caller computes
// cosines and sines in the precision that it needs: long double for the
// programs, __float128 for the strictest tests. Rounding errors come only from
// the arithmetic of Real.

#pragma once

#include <cstdint>
#include <vector>

namespace posenc::check {

template <typename Real>
struct RotatedPair {
  Real x, y;
  // |x c| + |y s| and |x s| + |y c|. Rounding errors are relative to these
  // sums, not to the results, because the two products of a result may cancel.
  Real x_terms, y_terms;
};

// Rotates the vector (x, y) counterclockwise. `c` and `s` are the angle's
// cosine and sine times the attention factor, which scales the vector.
template <typename Real>
RotatedPair<Real> RotatePair(Real x, Real y, Real c, Real s) {
  // std::abs has no overload for __float128.
  const auto magnitude = [](Real value) { return value < 0 ? -value : value; };
  return {x * c - y * s, x * s + y * c, magnitude(x * c) + magnitude(y * s),
          magnitude(x * s) + magnitude(y * c)};
}

// The channels of a head that hold a pair's x and y.
struct PairChannels {
  std::int64_t x, y;
};

// The channels of each pair in a head. d = 2 * pairs channels are rotated, from
// channel f on:
//
//   interleaved   pair i is (f + 2i, f + 2i + 1)
//   half-split    pair i is (f + i,  f + i + d/2)
//
// If pairs_by_axis is set, the d channels are divided into one slice for each
// axis, and each slice has its own pairs. An example with 2 pairs on the first
// axis and 1 pair on the second, half-split:
//
//   channel  f+0  f+1  f+2  f+3 | f+4  f+5
//            x0   x1   y0   y1  | x2   y2
struct PairLayout {
  bool interleaved = false;
  std::int64_t first = 0;  // channel
  std::int64_t pairs = 0;  // of all axes
  // The number of pairs of each axis, if every axis has its own slice. Empty if
  // there is only one slice.
  std::vector<std::int32_t> pairs_by_axis;

  PairChannels Channels(std::int64_t pair) const {
    std::int64_t before = 0;  // pairs of earlier slices
    std::int64_t count = pairs;
    for (const std::int32_t of_axis : pairs_by_axis) {
      count = of_axis;
      if (pair < before + count) break;
      before += count;
    }
    const std::int64_t start = first + 2 * before;
    const std::int64_t i = pair - before;
    if (interleaved) return {start + 2 * i, start + 2 * i + 1};
    return {start + i, start + i + count};
  }
};

}  // namespace posenc::check
