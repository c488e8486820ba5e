// Frequencies in quarter turns (pi / 2), split so that position * frequency can
// be reduced without error.
//
// A cosine needs the angle modulo a full circle. Position 2^26 at frequency 0.1
// is an angle of 6.7 million radians. In float32 this product may be off by a
// quarter of a radian, in float64 by 2^-31. The usual reduction then adds the
// error of a rounded pi. Here no part of the angle is lost before its whole
// quarter turns are subtracted.
//
// In quarter turns the reduction is simple: it subtracts the nearest integer,
// which is exact in float64. pi is used only once, in q = w * 2 / pi. The only
// error left is the rounding of the product p * q. float64 holds 53 significant
// bits, so both factors are cut into pieces that are short enough for exact
// products:
//
//   q = w * 2/pi   |<--- 21 --->|<--- 21 --->|<-------- 53 -------->|
//                        hi           mid               lo
//   p              |<------- 32 ------->|<--- 21 --->|
//                         p_high             p_low
//
//   p_high * hi    53 bits, exact        p_low * hi    42 bits, exact
//   p_high * mid   53 bits, exact        p_low * mid   42 bits, exact
//   p_high * lo    rounded, < 2^-42 |phi|        p_low * lo    likewise
//
// The pieces have these lengths for three reasons. 32 bits hold every whole
// position (|p| <= 2^31), so p_low is 0 unless p is fractional. 53 - 32 leaves
// 21 bits for hi. After two exact pieces, the rounding error of the third is
// harmless. The kernel (simd/kernels_trig.inl) splits p, and subtracts the
// nearest integer from each exact product. The kernel adds up the fractions
// together with their rounding errors (Knuth's TwoSum), and then subtracts the
// nearest integer from the sum.
//
// Error of the reduced angle, for phi = p q quarter turns:
//   2^-94 |phi|   difference between hi + mid + lo and q
//   2^-95 |phi|   rounding of p_high * lo; for p_low * lo it is 2^-32 of this
//   2^-104        rounding of the errors while they are added up, provided that
//                 the sums of fractions stay below one quarter turn
//
// At |phi| = 2^26 the error is 2^-67 quarter turns; float32 cosines need 2^-25,
// and float64 cosines need 2^-54.

#pragma once

#include <cstddef>
#include <vector>

#include "core/simd/kernels.h"

namespace posenc::core {

// Bounds of the frequencies that can be split, in radians per position (0 can
// be split, too). With positions of 2^31, an angle at the upper bound stays
// below 2^51 quarter turns: up to this number, the kernel can round to an
// integer by adding 1.5 * 2^52. At the lower bound, lo stays above the smallest
// normal float64.
inline constexpr double kMinFrequency = 0x1p-900;
inline constexpr double kMaxFrequency = 0x1p20;

// A frequency of hi + mid + lo quarter turns per position. hi and mid have at
// most 21 significant bits. mid and lo may have the opposite sign of hi,
// because pieces are rounded to nearest.
struct QuarterTurns {
  double hi, mid, lo;
};

// Splits `turns`, within +-2^900, without error: the sum of the pieces is
// exact.
QuarterTurns CutQuarterTurns(double turns);

// Splits inv_freq * 2 / pi with a relative error of at most 2^-94. inv_freq is
// 0 or of magnitude 2^-900 .. 2^900.
QuarterTurns SplitQuarterTurns(double inv_freq);

// Many frequencies, in the layout that the kernels read.
struct QuarterTurnArrays {
  std::vector<double> hi, mid, lo;

  std::size_t size() const { return hi.size(); }
  void Append(const QuarterTurns& turns);
  // Returns the row of all frequencies at one position on one axis.
  simd::TrigRow Row(const double* position, const double* factor) const {
    simd::TrigRow row = {};
    row.position = position;
    row.axes = 1;
    row.n = size();
    row.factor = factor;
    Point(0, &row);
    return row;
  }
  // Sets the pointers to the frequencies in `row` to element `first`.
  void Point(std::size_t first, simd::TrigRow* row) const {
    row->turns_hi = hi.data() + first;
    row->turns_mid = mid.data() + first;
    row->turns_lo = lo.data() + first;
  }
};

}  // namespace posenc::core
