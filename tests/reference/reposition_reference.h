// An independent repositioning for tests: __float128, from (A' / A) R(p' w' - p
// w), element by element.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/interpretation/source.h"
#include "core/rotation/reposition.h"
#include "tests/reference/apply_reference.h"

namespace posenc::test {

// Two encodings: a test repositions keys from one to the other.
struct Encodings {
  const char* name;
  core::RopeSpec from, to;
  std::int64_t axes = 1;
  // Lengths for scalings that depend on them.
  std::int64_t from_length = 4096, to_length = 4096;
  // Positions stay within [0, reach], so that the keys of xPos fit in float16.
  double reach = 60000;

  core::interpretation::RopeSource From() const;
  core::interpretation::RopeSource To() const;
  // Arguments without a movement.
  core::RepositionArgs Args(core::Layout layout = core::Layout::kBshd) const;
};

// Every kind of change that one rotation can make, for 3 heads of 24 channels.
std::vector<Encodings> AllEncodings();

// Exact old and new positions of each token: p' = to + shift.
struct Move {
  Grid from, to;
  double shift = 0;
};

// Checks every element of `out` against the moved keys `in`: rotated elements
// within ElementBound, other elements bit for bit. Returns the first wrong
// element, or nothing.
std::string FindMoveError(const Encodings& encodings, const Move& move,
                          const Tensor& in, const Tensor& out);

// Largest error of one rotation of a pair of length `norm`: of an element, and
// of the pair as a vector. u is the unit roundoff of the arithmetic.
//
// float32: cos and sin are correctly rounded (u), products and the sum are
// rounded (u each): 2u (|x c| + |y s|) + u |x'|. |x c| + |y s| and
// |x s| + |y c| are at most the length, and together (as a vector) sqrt(2) of
// it: 3u an element, (2 sqrt(2) + 1) u < 3.83u the pair. float64: cos and sin
// are within 2 ulp (4u), and the quotient of the amplitudes adds another u: 7u
// an element, (6 sqrt(2) + 1) u < 9.49u the pair. 16-bit dtypes are rotated in
// float32; their final rounding is not included.
double ElementBound(core::Dtype dtype, double norm);
double PairBound(core::Dtype dtype, double norm);

}  // namespace posenc::test
