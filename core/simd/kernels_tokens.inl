// The rotation of whole tokens, whose slices are of a width that is known to
// the compiler. Part of kernels.inl.

#pragma once

#include <cstddef>
#include <type_traits>

#include "core/simd/kernels.h"
#include "core/simd/kernels_bytes.inl"
#include "core/simd/kernels_row.inl"
#include "core/simd/kernels_slice.inl"
#include "core/simd/kernels_stream.inl"

namespace posenc::simd {
namespace {

// Elements are computed as they are in memory.
template <class Dtype>
inline constexpr bool kIsNative = sizeof(typename Dtype::Storage) ==
                                  sizeof(typename Dtype::Real);

// Room for a slice, whose rows come from the first-level cache. Float64, heads
// of 64 pairs, 64 MB in place, of the best scaling: half by step 0.48, by slice
// 0.97; interleaved 0.74 and 0.98; in the second-level cache interleaved 0.77
// and 0.92 of a vector copy (Zen 4).
template <class Step, std::size_t kSteps>
inline constexpr bool kSliceFitsRegisters =
    kIsNative<typename Step::Dtype>&& kSteps* Step::kVectors + 6 <=
    Step::Dtype::Isa::kRegisters;

// A slice's lines are rounded in a way that is checked afterwards.
template <class Step>
inline constexpr bool kChecksSlices =
    Step::Dtype::kRoundsTogether&& Step::kLines > 0;

// Loads the vectors of a slice in the order of their addresses, and before all
// that follows. Compilers would make some of these loads a part of the
// products, where they are begun later.
template <class Step, std::size_t kSteps>
[[gnu::always_inline]] inline void LoadInOrder(
    const typename Step::Dtype::Storage* src, Step* steps) {
  constexpr std::size_t kPairs = kSteps * Step::kPairs;
  if constexpr (requires { &Step::LoadX; }) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kSteps; ++i) {
      steps[i].LoadX(src, i * Step::kPairs);
    }
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kSteps; ++i) {
      steps[i].LoadY(src, i * Step::kPairs, kPairs);
    }
  } else {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kSteps; ++i) {
      steps[i].Load(src, i * Step::kPairs, kPairs);
    }
  }
  asm volatile("" ::: "memory");
}

// Loads, rotates and stores a slice of kSteps steps. It is all loaded before
// any of it is stored: 0.87 of a vector copy in the second-level cache against
// 0.65 with stores between the loads (float32, Zen 5).
//
// kFromMemory: the loads wait, and are begun in order. 64 MB in place, of the
// best scaling, without and with (Zen 4, fetched ahead): float32 half-split
// 0.79 and 0.94, interleaved 0.86 and 0.99. In a second-level cache it would
// halve the speed, and conversions of 16 bits lose by it anywhere.
//
// kFetches: what is `fetched` bytes ahead. From memory only once the slice's
// own loads are on their way (by Fetch itself: a lambda that calls it has no
// effect to g++ 12, and is left out): one core has few requests in flight, and
// those of float64 wait for the fetching else (out of place 0.63 of the best
// copy against 0.88).
template <class Step, std::size_t kSteps, bool kFetches, bool kFromMemory,
          class Row>
[[gnu::always_inline]] inline void RotateSlice(
    const Row& row, const typename Step::Dtype::Storage* src,
    typename Step::Dtype::Storage* dst, std::ptrdiff_t fetched) {
  using Dtype = typename Step::Dtype;
  constexpr std::size_t kPairs = kSteps * Step::kPairs;
  Step steps[kSteps];
  constexpr std::size_t kBytes = 2 * kPairs * sizeof(typename Dtype::Storage);
  const char* const at = reinterpret_cast<const char*>(src) + fetched;
  if constexpr (kFromMemory) {
    LoadInOrder<Step, kSteps>(src, steps);
    if constexpr (kFetches) Fetch(at, kBytes);
  } else {
    if constexpr (kFetches) Fetch(at, kBytes);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kSteps; ++i) {
      steps[i].Load(src, i * Step::kPairs, kPairs);
    }
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kSteps; ++i) {
    steps[i].Rotate(row, i * Step::kPairs, kPairs);
  }
  if constexpr (kChecksSlices<Step>) {
    typename Dtype::Isa::Bf16Rounding rounding;
    decltype(rounding.Two({}, {})) lines[kSteps * Step::kLines];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kSteps; ++i) {
      steps[i].Round(&rounding, lines + i * Step::kLines);
    }
    if (rounding.Passed()) [[likely]] {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kSteps; ++i) {
        Step::StoreLines(lines + i * Step::kLines, i * Step::kPairs, kPairs,
                         dst);
      }
      return;
    }
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kSteps; ++i) {
    steps[i].Store(i * Step::kPairs, kPairs, dst);
  }
}

// The same where registers do not hold all of it: step by step. What is checked
// together is stored together, so that it can still be rotated once more.
template <class Step, std::size_t kSteps, class Row>
[[gnu::always_inline]] inline void RotateSliceByStep(
    const Row& row, const typename Step::Dtype::Storage* src,
    typename Step::Dtype::Storage* dst) {
  using Dtype = typename Step::Dtype;
  constexpr std::size_t kPairs = kSteps * Step::kPairs;
  typename Dtype::Isa::Bf16Rounding rounding;
  decltype(rounding.Two({}, {})) lines[kSteps * Step::kLines];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kSteps; ++i) {
    Step step;
    step.Load(src, i * Step::kPairs, kPairs);
    step.Rotate(row, i * Step::kPairs, kPairs);
    step.Round(&rounding, lines + i * Step::kLines);
  }
  if (rounding.Passed()) [[likely]] {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kSteps; ++i) {
      Step::StoreLines(lines + i * Step::kLines, i * Step::kPairs, kPairs, dst);
    }
    return;
  }
#pragma GCC unroll 1
  for (std::size_t i = 0; i < kSteps; ++i) {
    Step step;
    step.Load(src, i * Step::kPairs, kPairs);
    step.Rotate(row, i * Step::kPairs, kPairs);
    step.Store(i * Step::kPairs, kPairs, dst);
  }
}

// The same without a check: each step is stored before the next is loaded.
template <class Step, std::size_t kSteps, class Row>
[[gnu::always_inline]] inline void RotateSliceUnchecked(
    const Row& row, const typename Step::Dtype::Storage* src,
    typename Step::Dtype::Storage* dst) {
  constexpr std::size_t kPairs = kSteps * Step::kPairs;
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kSteps; ++i) {
    Step step;
    step.Load(src, i * Step::kPairs, kPairs);
    step.Rotate(row, i * Step::kPairs, kPairs);
    step.Store(i * Step::kPairs, kPairs, dst);
  }
}

// Whole tokens: `heads` slices of each share its row. They are a stride apart,
// and tokens a token stride.
template <class DtypeType>
struct TokenRun {
  using Dtype = DtypeType;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;

  const Storage* src;
  Storage* dst;
  const Real* cosines;  // as the table has them
  const Real* sines;
  std::ptrdiff_t src_stride;
  std::ptrdiff_t dst_stride;
  std::ptrdiff_t src_token_stride;
  std::ptrdiff_t dst_token_stride;
  std::ptrdiff_t row_stride;
  std::size_t tokens;
  std::size_t heads;  // at least 1
  std::size_t pairs;
  std::ptrdiff_t ahead;
  bool from_memory;  // not from a cache
  // Bytes beside each slice that are copied, so many bytes from it on; if
  // `streams`, they are whole cache lines that are streamed.
  std::ptrdiff_t pass;
  std::size_t pass_bytes;
  bool streams;
  // The rest is for RunByStep alone.
  bool ordered;  // rows are in the order of the step
  // From slice to slice of a token; 0 unless rows are ordered or plain.
  std::ptrdiff_t head_row_stride;
  // Takes what dst, which has no gaps, is to get; null if nothing is gathered.
  LineStream<typename Dtype::Isa>* stream;
};

template <class Dtype>
using RunTokens = void (*)(const TokenRun<Dtype>&);

// Tokens of slices of kSteps steps, whose rows stay in registers, or in the
// first-level cache. A call for each token would take 60 to 90 cycles of it:
// 0.87 of a vector copy against 0.94 (float32 as above).
//
// Everything that leads to the next token's addresses stays in general
// registers: what comes back from memory waits for stores of slices before it
// that have the same place in their pages, and what comes back from vector
// registers waits for all vector work. Float32 in place, interleaved, cycles a
// slice: 13.6 with both, 12.2 with neither; a scaling takes 10.8 (Zen 5).
//
// kPrepares: rows are not in the step's order yet.
// kPasses: lines beside the slices are streamed with them.
template <class Step, std::size_t kSteps, bool kInRegisters, bool kPrepares,
          bool kPasses, bool kFetches, bool kFromMemory>
[[gnu::always_inline]] inline void RotateTokens(
    const TokenRun<typename Step::Dtype>& run) {
  using Dtype = typename Step::Dtype;
  using Isa = typename Dtype::Isa;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;
  constexpr std::size_t kPairs = kSteps * Step::kPairs;
  constexpr std::size_t kRowVectors = kSteps * Step::kRowVectors;
  constexpr bool kReorders = kPrepares && Step::kOrder != RowOrder::kPlain;
  constexpr bool kMakesTwins = kReorders && kInRegisters &&
                               Step::kOrder == RowOrder::kTwins &&
                               kHasTwins<Isa, Real>;
  using Row = std::conditional_t<
      kMakesTwins, TwinsInRegisters<Dtype, kRowVectors>,
      std::conditional_t<kInRegisters, RowInRegisters<Dtype, kRowVectors>,
                         RowInMemory<Dtype>>>;
  [[maybe_unused]] std::conditional_t<kReorders && !kMakesTwins,
                                      PreparedRow<Isa, Real>, int>
      prepared;
  const Storage* from = run.src;
  Storage* to = run.dst;
  const Real* cosines = run.cosines;
  const Real* sines = run.sines;
  const std::ptrdiff_t src_step = run.src_stride, dst_step = run.dst_stride;
  const std::ptrdiff_t row_step = run.row_stride, fetched = run.ahead;
  const std::size_t heads = run.heads;
  [[maybe_unused]] const std::ptrdiff_t pass = run.pass;
  [[maybe_unused]] const std::size_t pass_bytes = run.pass_bytes;
  const auto count = static_cast<std::ptrdiff_t>(heads);
  const std::ptrdiff_t src_gap = run.src_token_stride - count * src_step;
  const std::ptrdiff_t dst_gap = run.dst_token_stride - count * dst_step;
  for (std::size_t t = run.tokens; t > 0; --t) {
    RowInMemory<Dtype> in_memory = {cosines, sines};
    if constexpr (kReorders && !kMakesTwins) {
      prepared.Fill(Step::kOrder, cosines, sines, kPairs);
      in_memory = {prepared.cosines, prepared.sines};
    }
    const Row row(in_memory);
    std::size_t i = heads;
    do {
      if constexpr (kInRegisters || kSliceFitsRegisters<Step, kSteps>) {
        RotateSlice<Step, kSteps, kFetches, kFromMemory>(row, from, to,
                                                         fetched);
      } else {
        if constexpr (kFetches) {
          Fetch(reinterpret_cast<const char*>(from) + fetched,
                2 * kPairs * sizeof(Storage));
        }
        if constexpr (kChecksSlices<Step>) {
          RotateSliceByStep<Step, kSteps>(row, from, to);
        } else {
          RotateSliceUnchecked<Step, kSteps>(row, from, to);
        }
      }
      if constexpr (kPasses) {
        const char* const passing = reinterpret_cast<const char*>(from) + pass;
        if constexpr (kFetches) Fetch(passing + fetched, pass_bytes);
        StreamBytes<Isa>(passing, reinterpret_cast<char*>(to) + pass,
                         pass_bytes);
      }
      from += src_step;
      to += dst_step;
      // Compilers would otherwise compute where the loop ends in a second way,
      // by numbers that find no general register.
      asm("" : "+r"(from), "+r"(to));
    } while (--i > 0);
    from += src_gap;
    to += dst_gap;
    cosines += row_step;
    sines += row_step;
  }
}

template <class Step, std::size_t kSteps, bool kInRegisters, bool kPrepares,
          bool kPasses>
[[gnu::always_inline]] inline void RotateOrFetchTokens(
    const TokenRun<typename Step::Dtype>& run) {
  const auto rotate = [&]<bool kFetches, bool kFromMemory>() {
    RotateTokens<Step, kSteps, kInRegisters, kPrepares, kPasses, kFetches,
                 kFromMemory>(run);
  };
  if constexpr (kSliceFitsRegisters<Step, kSteps>) {
    if (run.from_memory) {
      if (run.ahead == 0) return rotate.template operator()<false, true>();
      return rotate.template operator()<true, true>();
    }
  }
  if (run.ahead == 0) return rotate.template operator()<false, false>();
  rotate.template operator()<true, false>();
}

template <class Step, std::size_t kSteps, bool kInRegisters, bool kStream>
void RunWholeTokens(const TokenRun<typename Step::Dtype>& run) {
  if constexpr (kStream) {
    if (run.pass_bytes > 0) {
      return RotateOrFetchTokens<Step, kSteps, kInRegisters, true, true>(run);
    }
  }
  RotateOrFetchTokens<Step, kSteps, kInRegisters, true, false>(run);
}

// The same of slices of one token, if they are in one place.
template <class Step, std::size_t kSteps, bool kInRegisters>
void RunOneToken(const SliceRun<typename Step::Dtype>& run) {
  if (run.lanes > 1 || run.row_stride != 0) {
    return RunSteps<Step, false>(run);
  }
  TokenRun<typename Step::Dtype> token = {};
  token.src = run.src[0];
  token.dst = run.dst[0];
  token.cosines = run.cosines[0];
  token.sines = run.sines[0];
  token.src_stride = run.src_stride;
  token.dst_stride = run.dst_stride;
  token.tokens = 1;
  token.heads = run.count;
  token.pairs = run.pairs;
  token.ahead = run.ahead;
  token.from_memory = run.from_memory;
  RotateOrFetchTokens<Step, kSteps, kInRegisters, false, false>(token);
}

}  // namespace
}  // namespace posenc::simd
