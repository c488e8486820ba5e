// Which step rotates slices of which width. Part of kernels.inl.

#pragma once

#include <cstddef>
#include <type_traits>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_slice.inl"
#include "core/simd/kernels_step.inl"
#include "core/simd/kernels_tokens.inl"
#include "core/simd/kernels_turns.inl"
#include "core/simd/kernels_wide.inl"

namespace posenc::simd {
namespace {

// How slices are rotated.
template <class Dtype>
struct Method {
  RunSlices<Dtype> run;
  RowOrder order;
  bool streams;                          // past the caches
  RunTokens<Dtype> in_tokens = nullptr;  // faster, where tokens are whole
  RunTokens<Dtype> in_place = nullptr;   // faster still, in place from a cache
  RunTurns<Dtype> by_turns = nullptr;    // of several places
  // Step by step, with all that TokenRun allows; in_tokens may be the same.
  RunTokens<Dtype> by_step = nullptr;
  bool loads_whole = false;  // a slice, before any of it is stored
  RowOrder turns_order = RowOrder::kPlain;  // of the rows of by_turns
};

// At most a quarter of the registers for a row's cosines and one for its sines,
// and room for a slice. Heads of 64 pairs in the second-level cache (Zen 5), of
// a vector copy: bfloat16 0.43 by rows in the first, 0.50 in registers; float16
// 0.43 and 0.48; float32 0.84 and 0.87.
template <class Step, std::size_t kSteps>
inline constexpr bool kFitsRegisters =
    kSteps* Step::kRowVectors * 4 <=
    Step::Dtype::Isa::kRegisters&& kSteps*(2 * Step::kRowVectors +
                                           Step::kVectors) +
        4 <=
    Step::Dtype::Isa::kRegisters;

// How many steps a column has: as many as fit registers together with their
// rows.
template <class Step>
inline constexpr std::size_t kColumnSteps = kFitsRegisters<Step, 2>   ? 2
                                            : kFitsRegisters<Step, 1> ? 1
                                                                      : 0;

// The step for what whole ones leave over: a smaller one if that is enough and
// if there is one.
template <class Step>
struct SmallerStep {
  using Type = Step;
};
template <class Dtype>
struct SmallerStep<HalfStep<Dtype, false>> {
  using Type = OneStep<Dtype, kHalf, kHalf>;
};
template <class Dtype>
struct SmallerStep<PlaneStep<Dtype, false>> {
  using Type = OneStep<Dtype, kHalf, kHalf>;
};

// Slices of one or two whole steps are what most odd widths have: 64 MB, heads
// of 80 channels, of the best copy, by a number of steps that the compiler does
// not know and by one that it does: float16 0.79 and 0.81, interleaved 0.77 and
// 0.82, float32 0.91 and 0.93 (Xeon, AVX-512). Float64 waits for the memory.
template <class Step, class Rest>
RunTokens<typename Step::Dtype> ByStep(std::size_t pairs) {
  if constexpr (sizeof(typename Step::Dtype::Storage) < sizeof(double)) {
    if (pairs / Step::kPairs == 1) return &RunByStep<Step, Rest, 1>;
    if (pairs / Step::kPairs == 2) return &RunByStep<Step, Rest, 2>;
  }
  return &RunByStep<Step, Rest, 0>;
}

// kStream: a step that overlaps others has no alignment.
template <class Step, bool kStream>
Method<typename Step::Dtype> Steps(std::size_t pairs) {
  using Dtype = typename Step::Dtype;
  // FP8 waits for its conversions: a call for each token is nothing beside
  // them, and code for whole tokens would take long to compile.
  constexpr bool kByStep = sizeof(typename Dtype::Storage) > 1;
  const std::size_t rest = pairs % Step::kPairs;
  if (rest != 0) {
    if constexpr (kStream) return {nullptr, Step::kOrder, true};
    Method<Dtype> method = {&RunSteps<Step, true>, Step::kOrder, false};
    if constexpr (kByStep && !kStream) {
      using Smaller = typename SmallerStep<Step>::Type;
      method.by_step = rest <= Smaller::kPairs ? ByStep<Step, Smaller>(pairs)
                                               : ByStep<Step, Step>(pairs);
      method.in_tokens = method.by_step;
    }
    return method;
  }
  Method<Dtype> method = {&RunSteps<Step, false>, Step::kOrder, kStream};
  RunTurns<Dtype> by_turns = nullptr;
  RowOrder turns_order = Step::kOrder;
  if constexpr (kByStep) {
    method.in_tokens = method.by_step = ByStep<Step, void>(pairs);
    by_turns = &RunByTurns<Step, 0, false, kStream>;
  }
  constexpr std::size_t kColumns = kColumnSteps<Step>;
  if constexpr (kIsNative<Dtype> && !kStream && kColumns > 0) {
    if (pairs % (kColumns * Step::kPairs) == 0) {
      method.in_place = &RunTokensByColumn<Step, kColumns>;
    }
  }
  const auto choose = [&]<std::size_t kSteps>() {
    if (pairs != kSteps * Step::kPairs) return;
    if constexpr (kFitsRegisters<Step, kSteps>) {
      method.run = &RunOneToken<Step, kSteps, true>;
      method.in_tokens = &RunWholeTokens<Step, kSteps, true, kStream>;
      method.in_place = nullptr;
      method.loads_whole = true;
      by_turns = &RunByTurns<Step, kSteps, true, kStream>;
      if constexpr (kMakesTwinRows<Step, true>) turns_order = RowOrder::kPlain;
    } else if constexpr (kSliceFitsRegisters<Step, kSteps> ||
                         (kChecksSlices<Step> && kSteps * Step::kLines * 2 <=
                                                     Dtype::Isa::kRegisters)) {
      method.run = &RunOneToken<Step, kSteps, false>;
      method.in_tokens = &RunWholeTokens<Step, kSteps, false, kStream>;
      method.in_place = nullptr;
      method.loads_whole = true;
      if constexpr (kByStep)
        by_turns = &RunByTurns<Step, kSteps, false, kStream>;
    } else if constexpr (kByStep) {
      method.in_tokens = &RunWholeTokens<Step, kSteps, false, kStream>;
      by_turns = &RunByTurns<Step, kSteps, false, kStream>;
    }
  };
  choose.template operator()<1>();
  choose.template operator()<2>();
  choose.template operator()<4>();
  choose.template operator()<8>();
  method.by_turns = by_turns;
  method.turns_order = turns_order;
  return method;
}

template <class Dtype>
inline constexpr bool kIsBf16 =
    std::is_same_v<Dtype, Bf16<typename Dtype::Isa>>;

// The method for slices of so many pairs; no run if kStream and this width or
// pairing is not written in whole vectors. own_rows: each slice has a row of
// its own, which it does not pay to prepare.
template <class Dtype, PairingIndex kIn, PairingIndex kOut, bool kStream>
Method<Dtype> ChooseMethod(std::size_t pairs, bool own_rows) {
  [[maybe_unused]] const bool prepared =
      !own_rows &&
      pairs <=
          PreparedRow<typename Dtype::Isa, typename Dtype::Real>::kMaxPairs;
  // Pairs of bfloat16 are cheaper to take apart than to keep as twins.
  if constexpr (kIn == kInterleaved && kOut == kInterleaved &&
                !kIsBf16<Dtype>) {
    using Twin = TwinStep<Dtype, kStream>;
    if (prepared) {
      if (pairs >= Twin::kPairs) return Steps<Twin, kStream>(pairs);
      if (!kStream) {
        return {&RunPadded<TwinStep<Dtype, false>, kIn, kOut, 2>,
                RowOrder::kTwins, kStream};
      }
    }
  }
  if constexpr (kIn == kHalf && kOut == kHalf) {
    if constexpr (kIsBf16<Dtype> && Dtype::Isa::kBf16Planes) {
      using Plane = PlaneStep<Dtype, kStream>;
      if (prepared && pairs % 2 == 0 && pairs >= Plane::kPairs) {
        return Steps<Plane, kStream>(pairs);
      }
    }
    using Half = HalfStep<Dtype, kStream>;
    if (pairs >= Half::kPairs) return Steps<Half, kStream>(pairs);
  }
  if constexpr (kIsBf16<Dtype> && kOut == kInterleaved) {
    using One = OneStep<Dtype, kIn, kOut, kStream>;
    if (pairs >= One::kPairs) {
      return Steps<One, kStream>(pairs);
    }
  }
  if constexpr (kStream) {
    return {nullptr, RowOrder::kPlain, true};
  } else {
    using One = OneStep<Dtype, kIn, kOut>;
    if (pairs >= One::kPairs) {
      return Steps<One, false>(pairs);
    }
    return {&RunPadded<One, kIn, kOut, 1>, RowOrder::kPlain, false};
  }
}

}  // namespace
}  // namespace posenc::simd
