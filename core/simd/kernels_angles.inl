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

// Two vectors of doubles, which become one of floats.
template <class Isa>
struct Doubled {
  using Real = typename Isa::Doubles;

  Real low, high;

  static Doubled Load(const double* src) {
    return {Real::load_unaligned(src), Real::load_unaligned(src + Real::size)};
  }
};

// Whether Isa has fused products and sums: a table of 131,072 x 64 takes 0.9 of
// the time with them (AVX-512, Zen 4). They round less often, which no byte
// shows, because rows in doubt are evaluated anew.
template <class Isa>
inline constexpr bool kFuses = requires(typename Isa::Doubles x) {
  Isa::MulAdd(x, x, x);
};

// Both ends of a result's error.
template <class Isa>
struct Ends {
  using Real = typename Isa::Doubles;
  using Floats = typename Isa::Floats;
  using Words = typename Isa::Words;

  Doubled<Isa> least, most;

  // a * b - c * d
  static Ends Difference(const Doubled<Isa>& a, const Doubled<Isa>& b,
                         const Doubled<Isa>& c, const Doubled<Isa>& d,
                         const Real& error) {
    Ends ends;
    Subtract(a.low, b.low, c.low, d.low, error, &ends.least.low,
             &ends.most.low);
    Subtract(a.high, b.high, c.high, d.high, error, &ends.least.high,
             &ends.most.high);
    return ends;
  }
  // a * b + c * d
  static Ends Sum(const Doubled<Isa>& a, const Doubled<Isa>& b,
                  const Doubled<Isa>& c, const Doubled<Isa>& d,
                  const Real& error) {
    Ends ends;
    Add(a.low, b.low, c.low, d.low, error, &ends.least.low, &ends.most.low);
    Add(a.high, b.high, c.high, d.high, error, &ends.least.high,
        &ends.most.high);
    return ends;
  }
  // Rounded; bits that differ at the ends are added to *doubt.
  Floats Round(Words* doubt) const {
    const Floats from = Isa::NarrowDoubles(least.low, least.high);
    const Floats to = Isa::NarrowDoubles(most.low, most.high);
    *doubt = *doubt | (xsimd::bitwise_cast<Words>(from) ^
                       xsimd::bitwise_cast<Words>(to));
    return from;
  }

 private:
  static void Subtract(const Real& a, const Real& b, const Real& c,
                       const Real& d, const Real& error, Real* least,
                       Real* most) {
    if constexpr (kFuses<Isa>) {
      *least = Isa::MulSub(a, b, Isa::MulAdd(c, d, error));
      *most = Isa::MulSub(a, b, Isa::MulSub(c, d, error));
    } else {
      const Real x = a * b - c * d;
      *least = x - error;
      *most = x + error;
    }
  }
  static void Add(const Real& a, const Real& b, const Real& c, const Real& d,
                  const Real& error, Real* least, Real* most) {
    if constexpr (kFuses<Isa>) {
      *least = Isa::MulAdd(a, b, Isa::MulSub(c, d, error));
      *most = Isa::MulAdd(a, b, Isa::MulAdd(c, d, error));
    } else {
      const Real x = a * b + c * d;
      *least = x - error;
      *most = x + error;
    }
  }
};

// How floats are stored: some of a vector, or all.
enum class Storing { kPart, kWhole, kStreamed };

// kVectors vectors of pairs from i on, in all rows; `count` floats of them are
// stored. The anchor's stay in registers, if there are enough of them (AVX-512:
// 1.5 of the speed of row after row, Zen 5).
template <class Isa, std::size_t kVectors, Storing kStoring>
std::uint32_t AddColumn(const AngleSums& sums, std::size_t i, std::size_t count,
                        float* cos, float* sin, std::ptrdiff_t pitch) {
  using Pair = Doubled<Isa>;
  using Real = typename Isa::Doubles;
  using Floats = typename Isa::Floats;
  using Words = typename Isa::Words;
  constexpr std::size_t kLanes = Floats::size, kColumn = kVectors * kLanes;
  const auto store = [](const Floats& x, float* dst) {
    if constexpr (kStoring == Storing::kStreamed) {
      Isa::Stream(x, dst);
    } else {
      x.store_unaligned(dst);
    }
  };
  const Real error(sums.error);
  const Words sign(sums.negate ? 0x80000000u : 0u);
  Pair c[kVectors], s[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) {
    c[v] = Pair::Load(sums.cos + i + v * kLanes);
    s[v] = Pair::Load(sums.sin + i + v * kLanes);
  }
  const double* delta = sums.deltas + i;
  const std::size_t rows = sums.rows, delta_pitch = sums.pitch;
  float cos_part[kColumn], sin_part[kColumn];
  // Beyond `count` everything is 0, and so always in doubt.
  std::uint32_t is_stored[kColumn];
  for (std::size_t k = 0; k < kColumn; ++k) is_stored[k] = k < count ? ~0u : 0u;
  std::uint32_t in_doubt = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    float* const to_cos = kStoring == Storing::kPart ? cos_part : cos;
    float* const to_sin = kStoring == Storing::kPart ? sin_part : sin;
    Words doubt(0u);
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      const Pair dc = Pair::Load(delta + v * kLanes);
      const Pair ds = Pair::Load(delta + delta_pitch + v * kLanes);
      const auto cosines = Ends<Isa>::Difference(c[v], dc, s[v], ds, error);
      const auto sines = Ends<Isa>::Sum(s[v], dc, c[v], ds, error);
      Words here(0u);
      const Words y = xsimd::bitwise_cast<Words>(sines.Round(&here));
      store(cosines.Round(&here), to_cos + v * kLanes);
      store(xsimd::bitwise_cast<Floats>(y ^ sign), to_sin + v * kLanes);
      if constexpr (kStoring == Storing::kPart) {
        here = here & Words::load_unaligned(is_stored + v * kLanes);
      }
      doubt = doubt | here;
    }
    if constexpr (kStoring == Storing::kPart) {
      std::memcpy(cos, cos_part, count * sizeof(float));
      std::memcpy(sin, sin_part, count * sizeof(float));
    }
    if (xsimd::any(doubt != Words(0u))) in_doubt |= std::uint32_t{1} << row;
    delta += 2 * delta_pitch;
    cos += pitch;
    sin += pitch;
  }
  return in_doubt;
}

template <class Isa>
std::uint32_t AddAngles(const AngleSums& sums_in_memory, float* cos, float* sin,
                        std::ptrdiff_t pitch) {
  constexpr std::size_t kLanes = Isa::Floats::size;
  // A cache line: streamed lines have to be whole soon.
  constexpr std::size_t kVectors = 16 / kLanes, kColumn = 16;
  const AngleSums sums = sums_in_memory;
  std::uint32_t in_doubt = 0;
  std::size_t i = 0;
  for (; i + kColumn <= sums.n; i += kColumn) {
    const auto add = sums.stream ? &AddColumn<Isa, kVectors, Storing::kStreamed>
                                 : &AddColumn<Isa, kVectors, Storing::kWhole>;
    in_doubt |= add(sums, i, kColumn, cos + i, sin + i, pitch);
  }
  for (; i < sums.n; i += kLanes) {
    const std::size_t count = sums.n - i;
    const auto add = count < kLanes ? &AddColumn<Isa, 1, Storing::kPart>
                                    : &AddColumn<Isa, 1, Storing::kWhole>;
    in_doubt |= add(sums, i, count, cos + i, sin + i, pitch);
  }
  return in_doubt;
}

}  // namespace
}  // namespace posenc::simd
