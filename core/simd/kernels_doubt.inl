// Finds cosines and sines of sums of angles that may round to the wrong
// float32. Part of kernels.inl.
//
// A float64 result x is off by less than `error`. So x and the exact value
// round to the same float32, unless a number halfway between two floats is
// closer to x than `error`. float32 keeps 23 of the 52 bits of x below the
// leading bit. So the other 29 bits give the distance from the halfway number:
//
//   |- 23 bits kept -|1000 .. 0000|     halfway: the 29 bits are 2^28
//
// A quick check first tests all results of some pairs together. A result counts
// as near if its 29 bits are within kNear of 2^28. kNear is valid for results
// of at least error * 2^38; smaller results count as near. Near results then
// get an exact check. Rounding is monotonic, so if x - error and x + error
// round to the same float, all numbers between them also round to this float.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

// Two vectors of doubles, which round to one vector of floats.
template <class Isa>
struct Doubled {
  using Real = typename Isa::Doubles;

  Real low, high;

  static Doubled Load(const double* src) {
    return {Real::load_unaligned(src), Real::load_unaligned(src + Real::size)};
  }
};

// Bounds the error, in last places, of a result with a magnitude of at least
// LeastMagnitude(). LeastMagnitude() is slightly more than error * 2^38,
// because it is itself rounded to float.
constexpr std::int32_t kNear = 0x8000;
constexpr std::int32_t kHalfway = 1 << 28;

// The least magnitude for which the quick check is valid. This magnitude is a
// normal float, because subnormal floats keep fewer than 23 bits.
inline float LeastMagnitude(double error) {
  constexpr float kLeastNormal = 0x1p-125F;
  constexpr double kAbove = 1 + 0x1p-22;  // allows for rounding to float
  const auto least = static_cast<float>(error * 0x1p38 * kAbove);
  return least > kLeastNormal ? least : kLeastNormal;
}

// The quick check keeps the least distance of a result from a halfway number,
// and the least magnitude.
template <class Isa>
class LookByMinima {
 public:
  using Floats = typename Isa::Floats;
  using Ints = xsimd::batch<std::int32_t, typename Isa::Arch>;

  // Checks results, given as rounded floats and as the lower words of the
  // float64 numbers.
  void At(const Floats& rounded, const Ints& low) {
    // Moves the 29 bits to the top, so that the halfway value 2^28 becomes the
    // least integer. Then adds kNear, so that near results become the least
    // integers.
    nearest_ = xsimd::min(nearest_, (low << 3) + Ints(kNear << 3));
    const Ints magnitude = BitCast<Ints>(rounded) & Ints(INT32_MAX);
    smallest_ = xsimd::min(smallest_, magnitude);
  }
  bool NothingNear(const Floats& least_magnitude) const {
    return !xsimd::any((nearest_ < Ints(INT32_MIN + 2 * (kNear << 3))) |
                       (smallest_ < BitCast<Ints>(least_magnitude)));
  }

 private:
  Ints nearest_ = Ints(INT32_MAX), smallest_ = Ints(INT32_MAX);
};

// The same check, for instruction sets that can test bits and can select the
// number with the smaller absolute value. LookByTests takes 0.89 of the time of
// LookByMinima (AVX-512, Xeon).
template <class Isa>
class LookByTests {
 public:
  using Floats = typename Isa::Floats;
  using Ints = xsimd::batch<std::int32_t, typename Isa::Arch>;

  void At(const Floats& rounded, const Ints& low) {
    // The 29 bits of near results become 0 .. 2 kNear - 1.
    constexpr std::int32_t kFar = (1 << 29) - 2 * kNear;
    far_ = Isa::HasAny(far_, low + Ints(kNear - kHalfway), Ints(kFar));
    smallest_ = Isa::LesserMagnitudes(smallest_, rounded);
  }
  bool NothingNear(const Floats& least_magnitude) const {
    return Isa::AllAtLeast(far_, smallest_, least_magnitude);
  }

 private:
  typename Isa::Lanes far_ = Isa::kAllLanes;
  Floats smallest_ = Floats(HUGE_VALF);
};

// The exact check of pairs [first, first + count) of a row. The stored result
// and the result here may be off in opposite directions, so both errors count.
template <class Isa>
[[gnu::noinline]] bool InDoubt(const AngleSums& sums, std::size_t row,
                               std::size_t first, std::size_t count) {
  using Pair = Doubled<Isa>;
  using Real = typename Isa::Doubles;
  constexpr std::size_t kLanes = Isa::Floats::size;
  const double* const deltas = sums.deltas + 2 * row * sums.pitch;
  const double off = 2 * sums.error;
  const auto differ = [](const Pair& x, const Pair& offset) {
    return xsimd::any(
        Isa::NarrowDoubles(x.low - offset.low, x.high - offset.high) !=
        Isa::NarrowDoubles(x.low + offset.low, x.high + offset.high));
  };
  const auto offset_of = [off](const Real& s, const Real& ds) {
    return xsimd::select((s == Real(0.0)) & (ds == Real(0.0)), Real(0.0),
                         Real(off));
  };
  // The padding of rows is 0, so it is never in doubt.
  for (std::size_t i = first; i < first + count; i += kLanes) {
    const Pair c = Pair::Load(sums.cos + i), s = Pair::Load(sums.sin + i);
    const Pair dc = Pair::Load(deltas + i);
    const Pair ds = Pair::Load(deltas + sums.pitch + i);
    const Pair offset = {offset_of(s.low, ds.low), offset_of(s.high, ds.high)};
    if (differ({c.low * dc.low - s.low * ds.low,
                c.high * dc.high - s.high * ds.high},
               offset) ||
        differ({s.low * dc.low + c.low * ds.low,
                s.high * dc.high + c.high * ds.high},
               offset)) {
      return true;
    }
  }
  return false;
}

}  // namespace
}  // namespace posenc::simd
