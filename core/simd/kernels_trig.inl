// Cosines and sines of position * frequency. Part of kernels.inl.
//
// angle/quarter_turns.h explains the method. The angle is a sum of exact
// products in quarter turns. The whole quarter turns of each product are
// subtracted before the fractions are added, so the whole angle is never
// computed. For one axis:
//
//   p = p_high + p_low                      32 and 21 bits
//   x = p_high * hi                         exact, up to 2^51 quarter turns
//     = integer + fraction                  exact; |fraction| <= 1/2
//   likewise p_high * mid and p_low * hi    their integers count, too
//   p_low * mid                             exact, tiny: added directly
//   p_high * lo, p_low * lo                 rounded, tiny: added directly
//
//   phi = integers + sum of fractions       integers modulo 2^64
//       = quarters + fraction + error       |fraction| <= 1/2 after Finish()
//
// Then two polynomials give the sine and the cosine of r on [-pi/4, pi/4].
// `quarters` modulo 4 swaps sine and cosine, and sets their signs:
//
//   quarters   0       1       2       3
//   cos phi    cos r  -sin r  -cos r   sin r      r = fraction + error, in
//   sin phi    sin r   cos r  -sin r  -cos r      radians
//
// All instruction sets give the same bytes, because products and sums are not
// fused, and lanes are independent.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

// If 1.5 * 2^52 is added to x, the last bit of the sum is worth 1. So the
// addition rounds x to the nearest integer, for |x| <= 2^51. The lowest bits of
// the sum are the lowest bits of this integer, in two's complement. The term
// 0.5 * 2^52 keeps a negative x from borrowing the leading bit.
constexpr double kRoundToInteger = 0x1.8p52;

// The sum of an angle's terms in quarter turns: quarters + fraction + error.
// The error is the rounding error of the fraction, about an ulp.
template <class Arch>
class AngleSum {
 public:
  using Real = xsimd::batch<double, Arch>;
  using Bits = xsimd::batch<std::int64_t, Arch>;

  // Counts the whole quarter turns of x, and adds the rest. Expects |x| < 2^51.
  void AddReduced(const Real& x) {
    const Real shifted = x + Real(kRoundToInteger);
    quarters_ = quarters_ + BitCast<Bits>(shifted);
    Add(x - (shifted - Real(kRoundToInteger)));
  }

  // Adds x, which is so small that it needs no reduction of its own.
  void Add(const Real& x) {
    const Real sum = fraction_ + x;
    error_ = error_ + TwoSumError(fraction_, x, sum);
    fraction_ = sum;
  }

  // Moves whole quarter turns from the sum to the count. Then
  // |fraction + error| <= 1/2, and error <= ulp(fraction) / 2.
  void Finish() {
    const Real shifted = fraction_ + Real(kRoundToInteger);
    quarters_ = quarters_ + BitCast<Bits>(shifted);
    const Real rest = fraction_ - (shifted - Real(kRoundToInteger));
    fraction_ = rest + error_;
    error_ = TwoSumError(rest, error_, fraction_);
  }

  // Only the lowest two bits are valid, because the other bits include bits of
  // kRoundToInteger.
  const Bits& quarters() const { return quarters_; }
  const Real& fraction() const { return fraction_; }
  const Real& error() const { return error_; }

 private:
  // Returns a + b - sum exactly, for sum = a + b rounded (Knuth).
  static Real TwoSumError(const Real& a, const Real& b, const Real& sum) {
    const Real b_part = sum - a;
    return (a - (sum - b_part)) + (b - b_part);
  }

  // With braces instead of parentheses, the compiler would choose xsimd's
  // constructor from a list of lanes.
  Bits quarters_ = Bits(std::int64_t(0));
  Real fraction_ = Real(0.0);
  Real error_ = Real(0.0);
};

// KernelSin() returns sin(x + y), and KernelCos() cos(x + y), for |x| <= pi /
// 4, y < ulp(x), by the polynomials of fdlibm's k_sin.c and k_cos.c. The error
// is below 0.6 ulp.
template <class Real>
Real KernelSin(const Real& x, const Real& y) {
  const Real z = x * x;
  const Real v = z * x;
  const Real r = Real(8.33333333332248946124e-03) +
                 z * (Real(-1.98412698298579493134e-04) +
                      z * (Real(2.75573137070700676789e-06) +
                           z * (Real(-2.50507602534068634195e-08) +
                                z * Real(1.58969099521155010221e-10))));
  return x - ((z * (Real(0.5) * y - v * r) - y) -
              v * Real(-1.66666666666666324348e-01));
}
template <class Real>
Real KernelCos(const Real& x, const Real& y) {
  const Real z = x * x;
  const Real r =
      z * (Real(4.16666666666666019037e-02) +
           z * (Real(-1.38888888888741095749e-03) +
                z * (Real(2.48015872894767294178e-05) +
                     z * (Real(-2.75573143513906633035e-07) +
                          z * (Real(2.08757232129817482790e-09) +
                               z * Real(-1.13596475577881948265e-11))))));
  const Real half_z = Real(0.5) * z;
  const Real w = Real(1.0) - half_z;
  return w + (((Real(1.0) - w) - half_z) + (z * r - x * y));
}

// Converts fraction + error quarter turns to radians, x + y. Only float64
// results need y; it is 0 if kNeedsTail is false.
template <bool kNeedsTail, class Real>
void ToRadians(const Real& fraction, const Real& error, Real* x, Real* y) {
  // pi / 2 = kHigh + kLow to 2^-110; kHigh = kHigh26 + kHigh27 exactly, so that
  // products with 26-bit numbers are exact.
  constexpr double kHigh = 0x1.921fb54442d18p+0;
  constexpr double kLow = 0x1.1a62633145c07p-54;
  constexpr double kHigh26 = 0x1.921fb58p+0;
  constexpr double kHigh27 = -0x1.dde974p-27;
  *x = fraction * Real(kHigh);
  if constexpr (kNeedsTail) {
    // The product's rounding error (Dekker; 2^27 + 1 splits float64 in half).
    const Real c = fraction * Real(134217729.0);
    const Real upper = c - (c - fraction);
    const Real lower = fraction - upper;
    const Real product_error =
        ((upper * Real(kHigh26) - *x) +
         (upper * Real(kHigh27) + lower * Real(kHigh26))) +
        lower * Real(kHigh27);
    *y = product_error + (fraction * Real(kLow) + error * Real(kHigh));
  } else {
    *y = Real(0.0);
  }
}

// Loads lanes [0, count) from p; count < lanes only if kPartial.
template <bool kPartial, class Real>
Real LoadLanes(const double* p, std::size_t count) {
  if constexpr (kPartial) {
    double lanes[Real::size] = {};
    std::memcpy(lanes, p, count * sizeof(double));
    return Real::load_unaligned(lanes);
  } else {
    return Real::load_unaligned(p);
  }
}

template <bool kPartial, class Real, class Out>
void StoreLanes(const Real& x, Out* dst, std::size_t count) {
  if constexpr (std::is_same_v<Out, double> && !kPartial) {
    x.store_unaligned(dst);
  } else {
    double lanes[Real::size];
    x.store_unaligned(lanes);
    const std::size_t n = kPartial ? count : Real::size;
    for (std::size_t i = 0; i < n; ++i) dst[i] = static_cast<Out>(lanes[i]);
  }
}

// True if x or y is within 16 last places of the middle of two floats, so that
// its rounding may be wrong. Checks the upper 24 of the 29 bits that float32
// drops. Results are off by at most 4 last places. The check is not valid for
// subnormal floats, which drop more bits.
template <class Real>
bool NearHalfway(const Real& x, const Real& y) {
  using Bits = xsimd::batch<std::int64_t, typename Real::arch_type>;
  const Bits offset(std::int64_t{16} - (std::int64_t{1} << 28));
  const Bits far((std::int64_t{1} << 29) - 32);
  const Bits x_far = (BitCast<Bits>(x) + offset) & far;
  const Bits y_far = (BitCast<Bits>(y) + offset) & far;
  const Bits zero(std::int64_t{0});
  return xsimd::any((x_far == zero) | (y_far == zero));
}

// Evaluates pairs [first, first + count). Returns true if the rounding of a
// float may be wrong.
template <class Isa, class Out, bool kPartial>
bool TrigLanes(const TrigRow& row, std::size_t first, std::size_t count,
               Out* cosines, Out* sines) {
  using Real = xsimd::batch<double, typename Isa::Arch>;
  using Bits = xsimd::batch<std::int64_t, typename Isa::Arch>;

  AngleSum<typename Isa::Arch> turns;
  for (std::size_t axis = 0; axis < row.axes; ++axis) {
    const double* at = row.position + axis * row.position_axis_stride;
    const Real p = row.position_pair_stride == 0
                       ? Real(*at)
                       : LoadLanes<kPartial, Real>(at + first, count);
    const std::size_t offset = axis * row.n + first;
    const Real hi = LoadLanes<kPartial, Real>(row.turns_hi + offset, count);
    const Real mid = LoadLanes<kPartial, Real>(row.turns_mid + offset, count);
    const Real lo = LoadLanes<kPartial, Real>(row.turns_lo + offset, count);
    // p_high has 32 significant bits, p_low has the other 21 bits (Veltkamp's
    // split, by 2^(53 - 32) + 1).
    const Real c = p * Real(2097153.0);
    const Real p_high = c - (c - p);
    const Real p_low = p - p_high;
    turns.AddReduced(p_high * hi);
    turns.AddReduced(p_high * mid);
    turns.Add(p_high * lo);
    // The low part of whole positions is 0. Adding zeros would change nothing,
    // so the branch only saves time.
    if (xsimd::any(p_low != Real(0.0))) {
      turns.AddReduced(p_low * hi);
      turns.Add(p_low * mid);
      turns.Add(p_low * lo);
    }
  }
  turns.Finish();

  Real x, y;
  ToRadians<std::is_same_v<Out, double>>(turns.fraction(), turns.error(), &x,
                                         &y);
  const Bits sin_bits = BitCast<Bits>(KernelSin(x, y));
  const Bits cos_bits = BitCast<Bits>(KernelCos(x, y));
  // Applies the table at the top of this file, in bits: odd quarters swap sine
  // and cosine; bit 1 of q is the sine's sign, and bit 1 of q + 1 is the
  // cosine's sign.
  const Bits q = turns.quarters();
  const Bits one(std::int64_t(1));
  const Bits odd = Bits(std::int64_t(0)) - (q & one);
  const Bits swapped = (sin_bits ^ cos_bits) & odd;
  const Bits sign(INT64_MIN);
  const Bits negated = row.negate ? sign : Bits(std::int64_t(0));
  const Bits sin_sign = ((q << 62) & sign) ^ negated;
  const Bits cos_sign = ((q + one) << 62) & sign;
  const Real sine = BitCast<Real>(sin_bits ^ swapped ^ sin_sign);
  const Real cosine = BitCast<Real>(cos_bits ^ swapped ^ cos_sign);

  const Real factor = row.factor_stride == 0 ? Real(*row.factor)
                                             : LoadLanes<kPartial, Real>(
                                                   row.factor + first, count);
  const Real c = cosine * factor, s = sine * factor;
  StoreLanes<kPartial>(c, cosines + first, count);
  StoreLanes<kPartial>(s, sines + first, count);
  return std::is_same_v<Out, float> && NearHalfway(c, s);
}

template <class Isa, class Out>
bool TrigRows(const TrigRow& row, Out* cosines, Out* sines) {
  constexpr std::size_t kLanes = xsimd::batch<double, typename Isa::Arch>::size;
  bool near = false;
  std::size_t i = 0;
  for (; i + kLanes <= row.n; i += kLanes) {
    near |= TrigLanes<Isa, Out, false>(row, i, kLanes, cosines, sines);
  }
  if (i < row.n) {
    near |= TrigLanes<Isa, Out, true>(row, i, row.n - i, cosines, sines);
  }
  return near;
}

template <class Isa>
void TrigRowsF64(const TrigRow& row, double* cosines, double* sines) {
  TrigRows<Isa>(row, cosines, sines);
}

}  // namespace
}  // namespace posenc::simd
