// Cosines and sines of sums of angles. Part of kernels.inl.
//
// Results are sums of products in float64, rounded to float32. The error of
// each sum is below AngleSums::error. kernels_doubt.inl finds results whose
// rounding may be wrong.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_doubt.inl"

namespace posenc::simd {
namespace {

// True if Isa has fused multiply-add, which saves a tenth of the time for a
// table (AVX-512, Zen 4). Fused sums are rounded less often, but the bytes are
// the same, because rows in doubt are evaluated directly.
template <class Isa>
inline constexpr bool kFuses = requires(typename Isa::Doubles x) {
  Isa::MulAdd(x, x, x);
};

template <class Real, class Isa>
Real Difference(const Real& a, const Real& b, const Real& c, const Real& d) {
  if constexpr (kFuses<Isa>) {
    return Isa::MulSub(a, b, c * d);
  } else {
    return a * b - c * d;
  }
}
template <class Real, class Isa>
Real Sum(const Real& a, const Real& b, const Real& c, const Real& d) {
  if constexpr (kFuses<Isa>) {
    return Isa::MulAdd(a, b, c * d);
  } else {
    return a * b + c * d;
  }
}

// Rounds results to float32, and checks them quickly.
template <class Isa>
class QuickLook {
 public:
  using Floats = typename Isa::Floats;
  using Ints = xsimd::batch<std::int32_t, typename Isa::Arch>;

  // The check sees the results with the bits of `ignored` set, so that ignored
  // elements do not count as small.
  Floats Round(const Doubled<Isa>& x, const Ints& ignored) {
    const Floats rounded = Isa::NarrowDoubles(x.low, x.high);
    look_.At(BitCast<Floats>(BitCast<Ints>(rounded) | ignored),
             Isa::LowWords(x.low, x.high));
    return rounded;
  }
  bool NothingNear(const Floats& least_magnitude) const {
    return look_.NothingNear(least_magnitude);
  }

 private:
  static constexpr bool kTests = requires(Floats x) {
    Isa::LesserMagnitudes(x, x);
  };

  std::conditional_t<kTests, LookByTests<Isa>, LookByMinima<Isa>> look_;
};

// How the floats of a vector are stored: a part, all, or all with non-temporal
// stores.
enum class Storing { kPart, kWhole, kStreamed };

// kVectors vectors of an anchor's cosines and sines.
template <class Isa, std::size_t kVectors>
struct AnchorPart {
  Doubled<Isa> c[kVectors], s[kVectors];

  [[gnu::always_inline]] AnchorPart(const AngleSums& sums, std::size_t i) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      c[v] = Doubled<Isa>::Load(sums.cos + i + v * Isa::Floats::size);
      s[v] = Doubled<Isa>::Load(sums.sin + i + v * Isa::Floats::size);
    }
  }
};

// Values that all results of a call share.
template <class Isa>
struct Constants {
  using Ints = typename QuickLook<Isa>::Ints;

  Ints sign;
  typename Isa::Floats least_magnitude;

  explicit Constants(const AngleSums& sums)
      : sign(sums.negate ? INT32_MIN : 0),
        least_magnitude(LeastMagnitude(sums.error)) {}
};

// Adds the deltas of a row to an anchor, for kVectors vectors of pairs, and
// stores `count` floats of the results. Returns true if the quick check finds
// no result in doubt. All cosines are stored before the sines, because
// alternating non-temporal stores of half lines take 1.6 times as long (AVX2,
// Zen 3).
template <class Isa, std::size_t kVectors, Storing kStoring>
[[gnu::always_inline]] inline bool AddPairs(
    const AnchorPart<Isa, kVectors>& anchor, const double* delta,
    std::size_t delta_pitch, const Constants<Isa>& constants, std::size_t count,
    float* cos, float* sin) {
  using Pair = Doubled<Isa>;
  using Real = typename Isa::Doubles;
  using Floats = typename Isa::Floats;
  using Ints = typename QuickLook<Isa>::Ints;
  constexpr std::size_t kLanes = Floats::size;
  // Elements beyond `count` are 0, which would count as small, so `ignored`
  // makes them large.
  Ints ignored(0);
  if constexpr (kStoring == Storing::kPart) {
    static_assert(kVectors == 1);
    constexpr std::int32_t kLargest = 0x7f7fffff;
    std::int32_t is_ignored[kLanes];
    for (std::size_t k = 0; k < kLanes; ++k) {
      is_ignored[k] = k < count ? 0 : kLargest;
    }
    ignored = Ints::load_unaligned(is_ignored);
  }
  const auto store = [&](const Floats& x, float* dst) {
    if constexpr (kStoring == Storing::kPart) {
      float part[kLanes];
      x.store_unaligned(part);
      std::memcpy(dst, part, count * sizeof(float));
    } else if constexpr (kStoring == Storing::kStreamed) {
      Isa::Stream(x, dst);
    } else {
      x.store_unaligned(dst);
    }
  };
  QuickLook<Isa> look;
  Floats cosines[kVectors], sines[kVectors];
#pragma GCC unroll 4
  for (std::size_t v = 0; v < kVectors; ++v) {
    const Pair &c = anchor.c[v], &s = anchor.s[v];
    const Pair dc = Pair::Load(delta + v * kLanes);
    const Pair ds = Pair::Load(delta + delta_pitch + v * kLanes);
    cosines[v] =
        look.Round({Difference<Real, Isa>(c.low, dc.low, s.low, ds.low),
                    Difference<Real, Isa>(c.high, dc.high, s.high, ds.high)},
                   ignored);
    sines[v] = look.Round({Sum<Real, Isa>(s.low, dc.low, c.low, ds.low),
                           Sum<Real, Isa>(s.high, dc.high, c.high, ds.high)},
                          ignored);
  }
#pragma GCC unroll 4
  for (std::size_t v = 0; v < kVectors; ++v) {
    store(cosines[v], cos + v * kLanes);
  }
#pragma GCC unroll 4
  for (std::size_t v = 0; v < kVectors; ++v) {
    const Ints y = BitCast<Ints>(sines[v]);
    store(BitCast<Floats>(y ^ constants.sign), sin + v * kLanes);
  }
  return look.NothingNear(constants.least_magnitude);
}

// Computes kVectors vectors of pairs from i on, in all rows. The anchor's
// vectors stay in registers, if there are enough registers.
template <class Isa, std::size_t kVectors, Storing kStoring>
std::uint32_t AddColumn(const AngleSums& sums, std::size_t i, std::size_t count,
                        float* cos, float* sin, std::ptrdiff_t pitch) {
  const AnchorPart<Isa, kVectors> anchor(sums, i);
  const Constants<Isa> constants(sums);
  const double* delta = sums.deltas + i;
  const std::size_t rows = sums.rows, delta_pitch = sums.pitch;
  std::uint32_t in_doubt = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    if (!AddPairs<Isa, kVectors, kStoring>(anchor, delta, delta_pitch,
                                           constants, count, cos, sin))
        [[unlikely]] {
      in_doubt |= std::uint32_t{InDoubt<Isa>(sums, row, i, count)} << row;
    }
    delta += 2 * delta_pitch;
    cos += pitch;
    sin += pitch;
  }
  return in_doubt;
}

// Computes the pairs up to `end`, row after row, 16 pairs (a cache line of
// floats) at a time.
template <class Isa>
std::uint32_t AddRows(const AngleSums& sums, std::size_t end, float* cos,
                      float* sin, std::ptrdiff_t pitch) {
  constexpr std::size_t kVectors = 16 / Isa::Floats::size;
  const Constants<Isa> constants(sums);
  const double* delta = sums.deltas;
  const std::size_t rows = sums.rows, delta_pitch = sums.pitch;
  std::uint32_t in_doubt = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < end; i += 16) {
      const AnchorPart<Isa, kVectors> anchor(sums, i);
      if (!AddPairs<Isa, kVectors, Storing::kWhole>(
              anchor, delta + i, delta_pitch, constants, 16, cos + i, sin + i))
          [[unlikely]] {
        in_doubt |= std::uint32_t{InDoubt<Isa>(sums, row, i, 16)} << row;
      }
    }
    delta += 2 * delta_pitch;
    cos += pitch;
    sin += pitch;
  }
  return in_doubt;
}

// Computes all whole columns of kVectors vectors from *i on.
template <class Isa, std::size_t kVectors>
std::uint32_t AddColumns(const AngleSums& sums, std::size_t* i, float* cos,
                         float* sin, std::ptrdiff_t pitch) {
  constexpr std::size_t kColumn = kVectors * Isa::Floats::size;
  std::uint32_t in_doubt = 0;
  for (; *i + kColumn <= sums.n; *i += kColumn) {
    const auto add = sums.stream ? &AddColumn<Isa, kVectors, Storing::kStreamed>
                                 : &AddColumn<Isa, kVectors, Storing::kWhole>;
    in_doubt |= add(sums, *i, kColumn, cos + *i, sin + *i, pitch);
  }
  return in_doubt;
}

// AVX-512 computes columns of 64 pairs, because its registers can hold the
// anchor of so many pairs. Other instruction sets compute row after row,
// because consecutive writes are faster. With non-temporal stores these
// instruction sets compute columns of 16 pairs, because columns are then faster
// (AVX2, Zen 3).
template <class Isa>
std::uint32_t AddAngles(const AngleSums& sums, float* cos, float* sin,
                        std::ptrdiff_t pitch) {
  constexpr std::size_t kLanes = Isa::Floats::size;
  std::uint32_t in_doubt = 0;
  std::size_t i = 0;
  if constexpr (kLanes == 16) {
    in_doubt |= AddColumns<Isa, 4>(sums, &i, cos, sin, pitch);
  } else if (sums.stream) {
    in_doubt |= AddColumns<Isa, 16 / kLanes>(sums, &i, cos, sin, pitch);
  } else {
    i = sums.n / 16 * 16;
    in_doubt |= AddRows<Isa>(sums, i, cos, sin, pitch);
  }
  in_doubt |= AddColumns<Isa, 1>(sums, &i, cos, sin, pitch);
  if (i < sums.n) {
    in_doubt |= AddColumn<Isa, 1, Storing::kPart>(sums, i, sums.n - i, cos + i,
                                                  sin + i, pitch);
  }
  return in_doubt;
}

// A sine that rounds to 0 becomes the smallest normal number, because a sine
// may be 0 only if its angle is 0 (AngleSums).
template <class Isa>
void AddAnglesF64(const AngleSums& sums, double* cos, double* sin) {
  using Real = typename Isa::Doubles;
  const Real zero(0.0), least(std::numeric_limits<double>::min());
  for (std::size_t i = 0; i < sums.n; i += Real::size) {
    const Real c = Real::load_unaligned(sums.cos + i);
    const Real s = Real::load_unaligned(sums.sin + i);
    const Real dc = Real::load_unaligned(sums.deltas + i);
    const Real ds = Real::load_unaligned(sums.deltas + sums.pitch + i);
    Difference<Real, Isa>(c, dc, s, ds).store_unaligned(cos + i);
    const Real sum = Sum<Real, Isa>(s, dc, c, ds);
    xsimd::select((sum == zero) & ((s != zero) | (ds != zero)), least, sum)
        .store_unaligned(sin + i);
  }
}

}  // namespace
}  // namespace posenc::simd
