// The rotation of a few vectors of pairs, and rows of cosines and sines in the
// order that the rotation needs. Part of kernels.inl.
//
// A step loads a few vectors of pairs, rotates the pairs, and stores them.
// Every instruction set rounds each product and each sum, because all
// instruction sets must give the same bytes, and SSE2 cannot fuse products and
// sums.
//
//   OneStep     a vector of x and one of y
//   HalfStep    two of each, for half-split pairs: 16-bit types can then load
//               and store whole vectors
//   PlaneStep   a HalfStep for bfloat16, if it is cheaper to split vectors of
//               32-bit words into even and odd elements; also for FP8
//   TwinStep    vectors of x0 y0 x1 y1 ... for interleaved pairs, in the order
//               of the memory, with swapped x and y instead of separate x and y
//                 (x, y) (c, c) + (y, x) (-s, s)
//
// kOrder is the order of the row of cosines and sines that a step reads. The
// row is in memory or stays in registers. All steps give the same bytes,
// because x c + y (-s) is x c - y s, and sums commute.
//
// Steps are always inlined, because a function call keeps a step's vectors in
// memory, which halves the speed (g++ 12).

#pragma once

#include <cstddef>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

// The cosines and sines of a slice. Cosines(i) is the vector that begins at
// value i.
template <class Dtype>
struct RowInMemory {
  using Real = typename Dtype::Real;
  using Batch = typename Dtype::Batch;

  const Real* cosines;
  const Real* sines;

  [[gnu::always_inline]] Batch Cosines(std::size_t i) const {
    return Batch::load_unaligned(cosines + i);
  }
  [[gnu::always_inline]] Batch Sines(std::size_t i) const {
    return Batch::load_unaligned(sines + i);
  }
};

// The first kVectors vectors of cosines and of sines. In Cosines(i) and
// Sines(i), i must be a constant for the compiler. The constructor is inline
// because g++ 12 leaves a row from a function call in memory. A rotation by
// such a row is a tenth slower (float32 in the second-level cache, Zen 4).
template <class Dtype, std::size_t kVectors>
struct RowInRegisters {
  using Batch = typename Dtype::Batch;

  Batch cosines[kVectors], sines[kVectors];

  RowInRegisters() = default;
  [[gnu::always_inline]] explicit RowInRegisters(
      const RowInMemory<Dtype>& row) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kVectors; ++i) {
      cosines[i] = row.Cosines(i * Dtype::kLanes);
      sines[i] = row.Sines(i * Dtype::kLanes);
    }
  }
  [[gnu::always_inline]] const Batch& Cosines(std::size_t i) const {
    return cosines[i / Dtype::kLanes];
  }
  [[gnu::always_inline]] const Batch& Sines(std::size_t i) const {
    return sines[i / Dtype::kLanes];
  }
};

// The order of the cosines c0, c1, c2, ... of a row.
enum class RowOrder {
  kPlain,
  kTwins,   // c0 c0 c1 c1 .., and -s0 s0 -s1 s1 ..
  kPlanes,  // c0 c2 .. c1 c3 ..
};

// A row in another order, made once for all slices that share it.
template <class Isa, class Real>
struct PreparedRow {
  static constexpr std::size_t kMaxPairs = 128;

  alignas(64) Real cosines[2 * kMaxPairs];
  alignas(64) Real sines[2 * kMaxPairs];

  // Fill() is not inlined, because the constants of its shuffles would take
  // registers from the loop over the slices. The loop would then run at 0.7 of
  // its speed (g++ 12).
  [[gnu::noinline]] void Fill(RowOrder order, const Real* cos, const Real* sin,
                              std::size_t pairs) {
    if (order == RowOrder::kTwins) {
      FillTwins(cos, sin, pairs);
    } else {
      FillPlane(cos, pairs / 2, cosines);
      FillPlane(sin, pairs / 2, sines);
    }
  }

 private:
  using Type = Native<Isa, Real>;
  using Batch = typename Type::Batch;

  void FillTwins(const Real* cos, const Real* sin, std::size_t pairs) {
    const Batch sign(Real(-0.0));
    const std::size_t whole = pairs / Type::kLanes * Type::kLanes;
    for (std::size_t i = 0; i < whole; i += Type::kLanes) {
      const Batch c = Type::Load(cos + i), s = Type::Load(sin + i);
      Type::template StoreInterleaved<false>(c, c, cosines + 2 * i);
      Type::template StoreInterleaved<false>(s ^ sign, s, sines + 2 * i);
    }
    for (std::size_t i = whole; i < pairs; ++i) {
      cosines[2 * i] = cosines[2 * i + 1] = cos[i];
      sines[2 * i] = -sin[i];
      sines[2 * i + 1] = sin[i];
    }
  }

  static void FillPlane(const Real* src, std::size_t half, Real* dst) {
    const std::size_t whole = half / Type::kLanes * Type::kLanes;
    for (std::size_t i = 0; i < whole; i += Type::kLanes) {
      Batch even, odd;
      Type::LoadInterleaved(src + 2 * i, &even, &odd);
      Type::Store(even, dst + i);
      Type::Store(odd, dst + half + i);
    }
    for (std::size_t i = whole; i < half; ++i) {
      dst[i] = src[2 * i];
      dst[half + i] = src[2 * i + 1];
    }
  }
};

// Rotates vectors of pairs: (x, y) -> (x cos - y sin, x sin + y cos).
template <class Batch>
[[gnu::always_inline]] inline void RotateBatch(const Batch& c, const Batch& s,
                                               Batch* x, Batch* y) {
  const Batch rotated = *x * c - *y * s;
  *y = *x * s + *y * c;
  *x = rotated;
}

template <class DtypeType, PairingIndex kIn, PairingIndex kOut,
          bool kStream = false>
struct OneStep {
  using Dtype = DtypeType;
  using Storage = typename Dtype::Storage;
  using Batch = typename Dtype::Batch;
  static constexpr std::size_t kPairs = Dtype::kLanes;
  static constexpr std::size_t kRowVectors = 1, kVectors = 2;
  static constexpr std::size_t kLines = kOut == kInterleaved ? 1 : 0;
  static constexpr RowOrder kOrder = RowOrder::kPlain;

  Batch x, y;

  // Loads pairs [first, first + kPairs) of a slice of `pairs` pairs.
  [[gnu::always_inline]] void Load(const Storage* src, std::size_t first,
                                   std::size_t pairs) {
    if constexpr (kIn == kHalf) {
      x = Dtype::Load(src + first);
      y = Dtype::Load(src + pairs + first);
    } else {
      Dtype::LoadInterleaved(src + 2 * first, &x, &y);
    }
  }
  template <class Row>
  [[gnu::always_inline]] void Rotate(const Row& row, std::size_t first,
                                     std::size_t) {
    RotateBatch(row.Cosines(first), row.Sines(first), &x, &y);
  }
  [[gnu::always_inline]] void Store(std::size_t first, std::size_t pairs,
                                    Storage* dst) const {
    if constexpr (kOut == kHalf) {
      Dtype::Store(x, dst + first);
      Dtype::Store(y, dst + pairs + first);
    } else {
      Dtype::template StoreInterleaved<kStream>(x, y, dst + 2 * first);
    }
  }
  template <class Line, class Rounding>
  [[gnu::always_inline]] void Round(Rounding* rounding, Line* lines) const {
    lines[0] = rounding->Pairs(x, y);
  }
  template <class Line>
  [[gnu::always_inline]] static void StoreLines(const Line* lines,
                                                std::size_t first, std::size_t,
                                                Storage* dst) {
    Dtype::template StoreLine<kStream>(lines[0], dst + 2 * first);
  }
};

template <class DtypeType, bool kStream>
struct HalfStep {
  using Dtype = DtypeType;
  using Storage = typename Dtype::Storage;
  using Batch = typename Dtype::Batch;
  static constexpr std::size_t kLanes = Dtype::kLanes;
  static constexpr std::size_t kPairs = 2 * kLanes;
  static constexpr std::size_t kRowVectors = 2, kVectors = 4, kLines = 2;
  static constexpr RowOrder kOrder = RowOrder::kPlain;

  Batch x0, x1, y0, y1;

  [[gnu::always_inline]] void Load(const Storage* src, std::size_t first,
                                   std::size_t pairs) {
    Dtype::LoadTwo(src + first, &x0, &x1);
    Dtype::LoadTwo(src + pairs + first, &y0, &y1);
  }
  template <class Row>
  [[gnu::always_inline]] void Rotate(const Row& row, std::size_t first,
                                     std::size_t) {
    RotateBatch(row.Cosines(first), row.Sines(first), &x0, &y0);
    RotateBatch(row.Cosines(first + kLanes), row.Sines(first + kLanes), &x1,
                &y1);
  }
  [[gnu::always_inline]] void Store(std::size_t first, std::size_t pairs,
                                    Storage* dst) const {
    Dtype::template StoreTwo<kStream>(x0, x1, dst + first);
    Dtype::template StoreTwo<kStream>(y0, y1, dst + pairs + first);
  }
  template <class Line, class Rounding>
  [[gnu::always_inline]] void Round(Rounding* rounding, Line* lines) const {
    lines[0] = rounding->Two(x0, x1);
    lines[1] = rounding->Two(y0, y1);
  }
  template <class Line>
  [[gnu::always_inline]] static void StoreLines(const Line* lines,
                                                std::size_t first,
                                                std::size_t pairs,
                                                Storage* dst) {
    Dtype::template StoreLine<kStream>(lines[0], dst + first);
    Dtype::template StoreLine<kStream>(lines[1], dst + pairs + first);
  }
};

template <class DtypeType, bool kStream>
struct TwinStep {
  using Dtype = DtypeType;
  using Storage = typename Dtype::Storage;
  using Batch = typename Dtype::Batch;
  static constexpr std::size_t kLanes = Dtype::kLanes;
  static constexpr std::size_t kPairs = kLanes;
  static constexpr std::size_t kRowVectors = 2, kVectors = 2, kLines = 0;
  static constexpr RowOrder kOrder = RowOrder::kTwins;

  Batch xy0, xy1;

  static Batch Rotated(const Batch& xy, const Batch& c, const Batch& s) {
    return xy * c + Dtype::Isa::SwapPairs(xy) * s;
  }

  [[gnu::always_inline]] void Load(const Storage* src, std::size_t first,
                                   std::size_t) {
    Dtype::LoadTwo(src + 2 * first, &xy0, &xy1);
  }
  template <class Row>
  [[gnu::always_inline]] void Rotate(const Row& row, std::size_t first,
                                     std::size_t) {
    const std::size_t i = 2 * first;
    xy0 = Rotated(xy0, row.Cosines(i), row.Sines(i));
    xy1 = Rotated(xy1, row.Cosines(i + kLanes), row.Sines(i + kLanes));
  }
  [[gnu::always_inline]] void Store(std::size_t first, std::size_t,
                                    Storage* dst) const {
    Dtype::template StoreTwo<kStream>(xy0, xy1, dst + 2 * first);
  }
};

// Expects that `pairs` is even. x0 and y0 have the even elements of x and y,
// and x1 and y1 have the odd elements.
template <class Dtype, bool kStream>
struct PlaneStep : HalfStep<Dtype, kStream> {
  using Half = HalfStep<Dtype, kStream>;
  using Half::x0, Half::x1, Half::y0, Half::y1;
  using Storage = typename Dtype::Storage;
  static constexpr RowOrder kOrder = RowOrder::kPlanes;

  [[gnu::always_inline]] void Load(const Storage* src, std::size_t first,
                                   std::size_t pairs) {
    Dtype::LoadInterleaved(src + first, &x0, &x1);
    Dtype::LoadInterleaved(src + pairs + first, &y0, &y1);
  }
  template <class Row>
  [[gnu::always_inline]] void Rotate(const Row& row, std::size_t first,
                                     std::size_t pairs) {
    const std::size_t even = first / 2, odd = (pairs + first) / 2;
    RotateBatch(row.Cosines(even), row.Sines(even), &x0, &y0);
    RotateBatch(row.Cosines(odd), row.Sines(odd), &x1, &y1);
  }
  [[gnu::always_inline]] void Store(std::size_t first, std::size_t pairs,
                                    Storage* dst) const {
    Dtype::template StoreInterleaved<kStream>(x0, x1, dst + first);
    Dtype::template StoreInterleaved<kStream>(y0, y1, dst + pairs + first);
  }
  template <class Line, class Rounding>
  [[gnu::always_inline]] void Round(Rounding* rounding, Line* lines) const {
    lines[0] = rounding->Pairs(x0, x1);
    lines[1] = rounding->Pairs(y0, y1);
  }
};

}  // namespace
}  // namespace posenc::simd
