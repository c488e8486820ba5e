// Rows of angles that are sums. Part of kernels.inl.
//
// A result x of float64 is off by less than `error`. Rounded to float32 it is
// what the exact value would be, unless a number halfway between two floats
// lies that close to x. Of the 52 bits of x below the leading one float32 keeps
// 23, so the other 29 tell how far x is from such a number:
//
//   |- 23 bits kept -|1000 .. 0000|     halfway: the 29 bits are 2^28
//
// This is looked at quickly first, for all results of some pairs together: are
// the 29 bits within kNear of 2^28 anywhere? kNear is right for results of
// error * 2^38 and more, and smaller ones count as near. What is near is then
// looked at closely: the rounding is monotonic, so if x - error and x + error
// become the same float, so does everything in between.

#pragma once

#include <algorithm>
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

// An error in units of the last place of any result of error * 2^38 and more:
// 2^15, and a little for the float that this limit is compared as.
constexpr std::int32_t kNear = 0x8100;

// The least magnitude that the quick look is right for. Below the normal
// floats, these keep fewer bits than 23.
inline float LeastMagnitude(double error) {
  constexpr float kLeastNormal = 0x1p-125F;
  const auto least = static_cast<float>(error * 0x1p38);
  return least > kLeastNormal ? least : kLeastNormal;
}

// What the quick look has seen of some results.
template <class Isa>
class QuickLook {
 public:
  using Real = typename Isa::Doubles;
  using Floats = typename Isa::Floats;
  using Ints = xsimd::batch<std::int32_t, typename Isa::Arch>;

  // Rounds results, and looks at them. A result does not count as small if its
  // bits in `ignored` are ones.
  Floats Round(const Doubled<Isa>& x, const Ints& ignored) {
    const Floats rounded = Isa::NarrowDoubles(x.low, x.high);
    // 29 bits to the top: halfway is the least number, to which kNear is added
    // so that it stands in the middle of what is near.
    const Ints rest = Isa::LowWords(x.low, x.high) << 3;
    nearest_ = xsimd::min(nearest_, rest + Ints(kNear << 3));
    const Ints magnitude = xsimd::bitwise_cast<Ints>(rounded) & Ints(INT32_MAX);
    smallest_ = xsimd::min(smallest_, magnitude | ignored);
    return rounded;
  }
  bool NothingNear(const Ints& least_magnitude) const {
    return !xsimd::any((nearest_ < Ints(INT32_MIN + 2 * (kNear << 3))) |
                       (smallest_ < least_magnitude));
  }

 private:
  Ints nearest_ = Ints(INT32_MAX), smallest_ = Ints(INT32_MAX);
};

// The close look, at pairs [first, first + count) of a row. The result may be
// off to one side, and what is computed here to the other: hence both errors.
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
  const auto differs = [](double x, double offset) {
    return static_cast<float>(x - offset) != static_cast<float>(x + offset);
  };
  const auto offset_of = [off](const Real& s, const Real& ds) {
    return xsimd::select((s == Real(0.0)) & (ds == Real(0.0)), Real(0.0),
                         Real(off));
  };
  std::size_t i = first;
  for (; i + kLanes <= first + count; i += kLanes) {
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
  for (; i < first + count; ++i) {
    const double c = sums.cos[i], s = sums.sin[i];
    const double dc = deltas[i], ds = deltas[sums.pitch + i];
    const double offset = s == 0 && ds == 0 ? 0 : off;
    if (differs(c * dc - s * ds, offset) || differs(s * dc + c * ds, offset)) {
      return true;
    }
  }
  return false;
}

// How floats are stored: some of a vector, or all.
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

// What is the same for all results of a call.
template <class Isa>
struct Constants {
  using Ints = typename QuickLook<Isa>::Ints;

  Ints sign, least_magnitude;

  explicit Constants(const AngleSums& sums)
      : sign(sums.negate ? INT32_MIN : 0),
        least_magnitude(xsimd::bitwise_cast<Ints>(
            typename Isa::Floats(LeastMagnitude(sums.error)))) {}
};

// The sums of an anchor and the deltas of a row, kVectors vectors of pairs. Of
// the results, `count` floats are stored. Returns whether the quick look sees
// that nothing is near. Cosines are stored, then sines: by halves of lines in
// turns, 64 MB past the caches take 1.6 times as long (AVX2, Zen 3).
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
  // Beyond `count` everything is 0, and so always small.
  Ints ignored(0);
  if constexpr (kStoring == Storing::kPart) {
    static_assert(kVectors == 1);
    std::int32_t is_ignored[kLanes];
    for (std::size_t k = 0; k < kLanes; ++k) is_ignored[k] = k < count ? 0 : -1;
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
    const Ints y = xsimd::bitwise_cast<Ints>(sines[v]);
    store(xsimd::bitwise_cast<Floats>(y ^ constants.sign), sin + v * kLanes);
  }
  return look.NothingNear(constants.least_magnitude);
}

// kVectors vectors of pairs from i on, in all rows. The anchor's stay in
// registers, if there are enough of them.
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

// Lines of 16 pairs up to pair `end`, row after row.
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

// Columns of kVectors vectors, as many as there are from *i on.
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

// AVX-512 takes 64 pairs at a time, as its registers hold the anchor of so
// many. Elsewhere row after row, because what follows in memory is written
// faster: a table of 64 MB by AVX2, of the best fill, 0.31 by columns of 16
// pairs and 0.41 by rows. Past the caches it is the other way about, 0.27 and
// 0.21 (Zen 3).
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

template <class Isa>
void AddPart(void* parts_in_memory) {
  constexpr std::size_t kLanes = Isa::Floats::size;
  auto* const parts = static_cast<AngleParts*>(parts_in_memory);
  const AngleSums& sums = parts->sums;
  const std::size_t i = parts->pair, row = parts->row, n = sums.n;
  const std::ptrdiff_t place = static_cast<std::ptrdiff_t>(row) * parts->pitch +
                               static_cast<std::ptrdiff_t>(i);
  float* const cos = parts->cos + place;
  float* const sin = parts->sin + place;
  const double* const delta = sums.deltas + 2 * row * sums.pitch + i;
  const Constants<Isa> constants(sums);
  bool clear = true;
  std::size_t done = 0;
  if (i + kPartPairs <= n) {
    const AnchorPart<Isa, kPartPairs / kLanes> anchor(sums, i);
    clear = AddPairs<Isa, kPartPairs / kLanes, Storing::kWhole>(
        anchor, delta, sums.pitch, constants, kPartPairs, cos, sin);
    done = kPartPairs;
  } else {
    for (; i + done < n; done += kLanes) {
      const AnchorPart<Isa, 1> anchor(sums, i + done);
      clear &= AddPairs<Isa, 1, Storing::kPart>(
          anchor, delta + done, sums.pitch, constants,
          std::min(kLanes, n - i - done), cos + done, sin + done);
    }
  }
  if (!clear) [[unlikely]] {
    const bool in_doubt =
        InDoubt<Isa>(sums, row, i, std::min(kPartPairs, n - i));
    parts->in_doubt |= std::uint32_t{in_doubt} << row;
  }
  const bool whole = i + done >= n;
  parts->pair = whole ? 0 : i + done;
  parts->row = row + (whole ? 1 : 0);
}

}  // namespace
}  // namespace posenc::simd
