// The cosines and sines of a token, in the order in which steps want them. Part
// of kernels.inl.

#pragma once

#include <cstddef>
#include <type_traits>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

// The cosines and sines of a slice; Cosines(i) are those from value i on.
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

// Their first kVectors vectors. i must be known to the compiler. The
// constructor is inline because a row that a call has made stays in memory (g++
// 12): float32 in the second-level cache reached 0.87 of a vector copy so, and
// 0.95 inline; in place 0.88 and 0.93 (Zen 4).
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

// Whether Isa makes twins of a row's values as it loads them.
template <class Isa, class Real>
inline constexpr bool kHasTwins = requires(const Real* values) {
  Isa::Twins(values);
};

// The first kVectors vectors of a row of twins, made of a plain row. i must be
// known to the compiler. A row that is made in memory first is waited for:
// float32 in place, 12.2 cycles a slice against 11.7 (as in RotateTokens).
template <class Dtype, std::size_t kVectors>
struct TwinsInRegisters : RowInRegisters<Dtype, kVectors> {
  [[gnu::always_inline]] explicit TwinsInRegisters(
      const RowInMemory<Dtype>& plain) {
    using Isa = typename Dtype::Isa;
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kVectors; ++i) {
      const std::size_t first = i * Dtype::kLanes / 2;
      this->cosines[i] = Isa::Twins(plain.cosines + first);
      this->sines[i] = Isa::NegateFirsts(Isa::Twins(plain.sines + first));
    }
  }
};

// The order of a row's cosines c0 c1 c2 c3 ..
enum class RowOrder {
  kPlain,
  kTwins,   // c0 c0 c1 c1 .., and -s0 s0 -s1 s1 ..
  kPlanes,  // c0 c2 .. c1 c3 ..
};

// to_cos and to_sin get 2 * pairs values each.
template <class Isa, class Real>
void FillTwins(const Real* cos, const Real* sin, std::size_t pairs,
               Real* to_cos, Real* to_sin) {
  using Type = Native<Isa, Real>;
  using Batch = typename Type::Batch;
  const Batch sign(Real(-0.0));
  const std::size_t whole = pairs / Type::kLanes * Type::kLanes;
  for (std::size_t i = 0; i < whole; i += Type::kLanes) {
    const Batch c = Type::Load(cos + i), s = Type::Load(sin + i);
    Type::template StoreInterleaved<false>(c, c, to_cos + 2 * i);
    Type::template StoreInterleaved<false>(s ^ sign, s, to_sin + 2 * i);
  }
  for (std::size_t i = whole; i < pairs; ++i) {
    to_cos[2 * i] = to_cos[2 * i + 1] = cos[i];
    to_sin[2 * i] = -sin[i];
    to_sin[2 * i + 1] = sin[i];
  }
}

// A row in another order. It is made once for all slices that share it.
template <class Isa, class Real>
struct PreparedRow {
  static constexpr std::size_t kMaxPairs = 128;

  alignas(64) Real cosines[2 * kMaxPairs];
  alignas(64) Real sines[2 * kMaxPairs];

  // A call, because the constants of its shuffles would otherwise take
  // registers from the loop over the slices, which then keeps vectors in
  // memory: 0.7 of the speed (g++ 12).
  [[gnu::noinline]] void Fill(RowOrder order, const Real* cos, const Real* sin,
                              std::size_t pairs) {
    if (order == RowOrder::kTwins) {
      FillTwins<Isa>(cos, sin, pairs, cosines, sines);
    } else {
      FillPlane(cos, pairs / 2, cosines);
      FillPlane(sin, pairs / 2, sines);
    }
  }

 private:
  using Type = Native<Isa, Real>;
  using Batch = typename Type::Batch;

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

// A token's row in the order in which Step takes it.
template <class Step>
class TokenRow {
 public:
  using Dtype = typename Step::Dtype;
  using Real = typename Dtype::Real;

  [[gnu::always_inline]] RowInMemory<Dtype> Ordered(const Real* cosines,
                                                    const Real* sines,
                                                    std::size_t pairs) {
    if constexpr (Step::kOrder == RowOrder::kPlain) {
      return {cosines, sines};
    } else {
      prepared_.Fill(Step::kOrder, cosines, sines, pairs);
      return {prepared_.cosines, prepared_.sines};
    }
  }

 private:
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<
      Step::kOrder == RowOrder::kPlain, Nothing,
      PreparedRow<typename Dtype::Isa, Real>>
      prepared_;
};

}  // namespace
}  // namespace posenc::simd
