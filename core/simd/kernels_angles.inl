// Rows of angles that are sums. Part of kernels.inl.
//
// Whether float32 rounds a result as it would round the exact value is seen
// from both ends of its error: rounding is monotonic, so if result - error and
// result + error become the same float, so does everything in between.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernels.h"

namespace posenc::simd {
namespace {

// One vector of floats, from two of doubles.
template <class Isa>
struct Doubled {
  using Real = typename Isa::Doubles;
  using Floats = typename Isa::Floats;
  using Words = typename Isa::Words;

  Real low, high;

  static Doubled Load(const double* src) {
    return {Real::load_unaligned(src), Real::load_unaligned(src + Real::size)};
  }
  // Rounded; bits that differ at the ends of the error are added to *doubt.
  Floats Round(const Real& error, Words* doubt) const {
    const Floats least = Isa::NarrowDoubles(low - error, high - error);
    const Floats most = Isa::NarrowDoubles(low + error, high + error);
    *doubt = *doubt | (xsimd::bitwise_cast<Words>(least) ^
                       xsimd::bitwise_cast<Words>(most));
    return least;
  }
};

template <class Isa>
std::uint32_t AddAngles(const AngleSums& sums_in_memory, float* cos, float* sin,
                        std::ptrdiff_t pitch) {
  using Pair = Doubled<Isa>;
  using Real = typename Isa::Doubles;
  using Floats = typename Isa::Floats;
  using Words = typename Isa::Words;
  constexpr std::size_t kLanes = Floats::size;
  const AngleSums sums = sums_in_memory;
  const Real error(sums.error);
  const Words sign(sums.negate ? 0x80000000u : 0u);
  std::uint32_t in_doubt = 0;
  for (std::size_t row = 0; row < sums.rows; ++row) {
    const double* const delta = sums.deltas + row * 2 * sums.pitch;
    Words doubt(0u);
    for (std::size_t i = 0; i < sums.n; i += kLanes) {
      const Pair c = Pair::Load(sums.cos + i), s = Pair::Load(sums.sin + i);
      const Pair dc = Pair::Load(delta + i);
      const Pair ds = Pair::Load(delta + sums.pitch + i);
      const Pair cosines = {c.low * dc.low - s.low * ds.low,
                            c.high * dc.high - s.high * ds.high};
      const Pair sines = {s.low * dc.low + c.low * ds.low,
                          s.high * dc.high + c.high * ds.high};
      const Floats x = cosines.Round(error, &doubt);
      const Floats y = xsimd::bitwise_cast<Floats>(
          xsimd::bitwise_cast<Words>(sines.Round(error, &doubt)) ^ sign);
      if (sums.n - i < kLanes) {
        float lanes[kLanes];
        x.store_unaligned(lanes);
        std::memcpy(cos + i, lanes, (sums.n - i) * sizeof(float));
        y.store_unaligned(lanes);
        std::memcpy(sin + i, lanes, (sums.n - i) * sizeof(float));
      } else if (sums.stream) {
        Isa::Stream(x, cos + i);
        Isa::Stream(y, sin + i);
      } else {
        x.store_unaligned(cos + i);
        y.store_unaligned(sin + i);
      }
    }
    if (xsimd::any(doubt != Words(0u))) in_doubt |= std::uint32_t{1} << row;
    cos += pitch;
    sin += pitch;
  }
  if (sums.stream) Isa::EndStreams();
  return in_doubt;
}

}  // namespace
}  // namespace posenc::simd
