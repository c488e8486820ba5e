// The rotation of one slice: a head's pairs. Part of kernels.inl.
//
//   WholeSlice    whole steps; the compiler knows their number
//   AnySlice      any other width of at least one step
//   PaddedSlice   fewer pairs than a step has
//
// All three classes give the same bytes. Each class has a type Step, a type
// Row, kOrder (the order of the row in memory), and kPairs (the number of
// pairs; 0 if the compiler does not know it).

#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_step.inl"

namespace posenc::simd {
namespace {

// True if elements are computed in the type that they have in memory.
template <class Dtype>
inline constexpr bool kIsNative = sizeof(typename Dtype::Storage) ==
                                  sizeof(typename Dtype::Real);

// True if the registers can hold a row and a slice. At most a quarter of the
// registers hold cosines, and at most a quarter hold sines. Rows in registers
// are up to 1.16 times as fast as rows in the first-level cache (Zen 5).
template <class Step, std::size_t kSteps>
constexpr bool RowFitsRegisters() {
  constexpr std::size_t kRegisters = Step::Dtype::Isa::kRegisters;
  return kSteps * Step::kRowVectors * 4 <= kRegisters &&
         kSteps * (2 * Step::kRowVectors + Step::kVectors) + 4 <= kRegisters;
}

// True if the registers can hold a slice, with its row in the first-level
// cache. Loading a whole slice is 1.2 times as fast as loading it step by step
// (interleaved float64, Zen 4).
template <class Step, std::size_t kSteps>
constexpr bool SliceFitsRegisters() {
  return kIsNative<typename Step::Dtype> &&
         kSteps * Step::kVectors + 6 <= Step::Dtype::Isa::kRegisters;
}

// True if a slice's lines are rounded quickly, and checked afterwards.
template <class Step, std::size_t kSteps>
constexpr bool RoundsTogether() {
  constexpr bool kRounds = kIsBf16<typename Step::Dtype> && requires {
    typename Step::Dtype::Isa::Bf16Rounding;
  };
  return kRounds && Step::kLines > 0 &&
         kSteps * Step::kLines * 2 <= Step::Dtype::Isa::kRegisters;
}

// Rotates kSteps steps from pair `first` on, and loads kTogether steps before
// it stores them.
template <class Step, std::size_t kSteps, std::size_t kTogether, class Row>
[[gnu::always_inline]] inline void RotateSteps(
    const Row& row, const typename Step::Dtype::Storage* src,
    typename Step::Dtype::Storage* dst, std::size_t first, std::size_t pairs) {
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kSteps; i += kTogether) {
    Step steps[kTogether];
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kTogether; ++k) {
      steps[k].Load(src, first + (i + k) * Step::kPairs, pairs);
    }
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kTogether; ++k) {
      steps[k].Rotate(row, first + (i + k) * Step::kPairs, pairs);
    }
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kTogether; ++k) {
      steps[k].Store(first + (i + k) * Step::kPairs, pairs, dst);
    }
  }
}

// Rounds a whole slice quickly, and stores it if the check passes. Otherwise
// each step is rounded again, and stored. If kKeeps, the registers have kept
// the steps; otherwise the steps are computed again.
template <class Step, std::size_t kSteps, bool kKeeps, class Row>
[[gnu::always_inline]] inline void RotateTogether(
    const Row& row, const typename Step::Dtype::Storage* src,
    typename Step::Dtype::Storage* dst) {
  constexpr std::size_t kPairs = kSteps * Step::kPairs;
  typename Step::Dtype::Isa::Bf16Rounding rounding;
  decltype(rounding.Two({}, {})) lines[kSteps * Step::kLines];
  Step steps[kKeeps ? kSteps : 1];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kSteps; ++i) {
    Step& step = steps[kKeeps ? i : 0];
    step.Load(src, i * Step::kPairs, kPairs);
    step.Rotate(row, i * Step::kPairs, kPairs);
    step.Round(&rounding, lines + i * Step::kLines);
  }
  if (rounding.Passed()) [[likely]] {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kSteps; ++i) {
      Step::StoreLines(lines + i * Step::kLines, i * Step::kPairs, kPairs, dst);
    }
  } else if constexpr (kKeeps) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kSteps; ++i) {
      steps[i].Store(i * Step::kPairs, kPairs, dst);
    }
  } else {
#pragma GCC unroll 1
    for (std::size_t i = 0; i < kSteps; ++i) {
      RotateSteps<Step, 1, 1>(row, src, dst, i * Step::kPairs, kPairs);
    }
  }
}

// A slice in a cache is loaded whole before any store, if the registers can
// hold it. This is 1.3 times as fast as alternating loads and stores (float32,
// Zen 5). A slice in main memory is loaded and stored step by step, which is up
// to 1.2 times as fast there (Xeon with AVX-512).
template <class StepType, std::size_t kSteps, bool kCached>
struct WholeSlice {
  using Step = StepType;
  using Dtype = typename Step::Dtype;
  using Storage = typename Dtype::Storage;
  static constexpr RowOrder kOrder = Step::kOrder;
  static constexpr std::size_t kPairs = kSteps * Step::kPairs;
  static constexpr bool kRowInRegisters = RowFitsRegisters<Step, kSteps>();
  using Row =
      std::conditional_t<kRowInRegisters,
                         RowInRegisters<Dtype, kSteps * Step::kRowVectors>,
                         RowInMemory<Dtype>>;

  [[gnu::always_inline]] static void Rotate(const Row& row, const Storage* src,
                                            Storage* dst, std::size_t) {
    constexpr bool kWhole =
        kCached && (kRowInRegisters || SliceFitsRegisters<Step, kSteps>());
    if constexpr (kCached && RoundsTogether<Step, kSteps>()) {
      RotateTogether<Step, kSteps, kRowInRegisters>(row, src, dst);
    } else {
      RotateSteps<Step, kSteps, kWhole ? kSteps : 1>(row, src, dst, 0, kPairs);
    }
  }
};

// The last step may overlap the previous step. The last step is loaded before
// any store, so that no pair is rotated twice if src is dst.
template <class StepType>
struct AnySlice {
  using Step = StepType;
  using Dtype = typename Step::Dtype;
  using Storage = typename Dtype::Storage;
  using Row = RowInMemory<Dtype>;
  static constexpr RowOrder kOrder = Step::kOrder;
  static constexpr std::size_t kPairs = 0;

  [[gnu::always_inline]] static void Rotate(const Row& row, const Storage* src,
                                            Storage* dst, std::size_t pairs) {
    const std::size_t last = pairs - Step::kPairs;
    Step last_step;
    last_step.Load(src, last, pairs);
    for (std::size_t i = 0; i < last; i += Step::kPairs) {
      RotateSteps<Step, 1, 1>(row, src, dst, i, pairs);
    }
    last_step.Rotate(row, last, pairs);
    last_step.Store(last, pairs, dst);
  }
};

// Rotates copies that are padded to a whole step.
template <class DtypeType, PairingIndex kIn, PairingIndex kOut>
struct PaddedSlice {
  using Dtype = DtypeType;
  using Step = OneStep<Dtype, kIn, kOut>;
  using Storage = typename Dtype::Storage;
  using Row = RowInMemory<Dtype>;
  static constexpr RowOrder kOrder = RowOrder::kPlain;
  static constexpr std::size_t kPairs = 0;

  static void Rotate(const Row& row, const Storage* src, Storage* dst,
                     std::size_t pairs) {
    using Real = typename Dtype::Real;
    constexpr std::size_t kRoom = Step::kPairs;
    const std::size_t half_bytes = pairs * sizeof(Storage);
    Storage in[2 * kRoom] = {}, out[2 * kRoom];
    Real cosines[kRoom] = {}, sines[kRoom] = {};
    std::memcpy(cosines, row.cosines, pairs * sizeof(Real));
    std::memcpy(sines, row.sines, pairs * sizeof(Real));
    // The second half of a padded half-split slice starts at kRoom.
    std::memcpy(in, src, half_bytes);
    std::memcpy(in + (kIn == kHalf ? kRoom : pairs), src + pairs, half_bytes);
    Step step;
    step.Load(in, 0, kRoom);
    step.Rotate(Row{cosines, sines}, 0, kRoom);
    step.Store(0, kRoom, out);
    std::memcpy(dst, out, half_bytes);
    std::memcpy(dst + pairs, out + (kOut == kHalf ? kRoom : pairs), half_bytes);
  }
};

}  // namespace
}  // namespace posenc::simd
