// The rotation of whole tokens, if registers do not hold a slice, or if the
// compiler does not know its width. Part of kernels.inl.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/simd/kernels.h"
#include "core/simd/kernels_bytes.inl"
#include "core/simd/kernels_row.inl"
#include "core/simd/kernels_slice.inl"
#include "core/simd/kernels_stream.inl"
#include "core/simd/kernels_tokens.inl"

namespace posenc::simd {
namespace {

// Step by step, as RunSteps does it, but many tokens in one call. Second-level
// cache, of a vector copy, by a call for each token and so: float64 half-split
// 0.74 and 0.94, interleaved 0.75 and 0.83, float16 0.46 and 0.56 (AVX2, Zen
// 3).
//
// Rest: the step that rotates what whole steps leave over, or void if they
// leave nothing. It overlaps them, and is loaded before anything is stored.
// kSteps: how many whole steps a slice has; 0 if the compiler does not know.
template <class Step, class Rest, std::size_t kSteps = 0>
void RunByStep(const TokenRun<typename Step::Dtype>& run) {
  using Dtype = typename Step::Dtype;
  using Isa = typename Dtype::Isa;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;
  constexpr bool kOverlaps = !std::is_void_v<Rest>;
  using LastStep = std::conditional_t<kOverlaps, Rest, Step>;
  const Storage* from = run.src;
  const Real* cosines = run.cosines;
  const Real* sines = run.sines;
  const std::ptrdiff_t src_step = run.src_stride;
  const std::ptrdiff_t head_row_step = run.head_row_stride;
  const std::ptrdiff_t row_step = run.row_stride, fetched = run.ahead;
  const std::ptrdiff_t pass = run.pass;
  const std::size_t heads = run.heads, pass_bytes = run.pass_bytes;
  const auto count = static_cast<std::ptrdiff_t>(heads);
  const std::ptrdiff_t src_gap = run.src_token_stride - count * src_step;
  const std::size_t pairs = run.pairs;
  const std::size_t whole =
      kSteps > 0 ? kSteps * Step::kPairs : pairs / Step::kPairs * Step::kPairs;
  const std::size_t last = pairs - LastStep::kPairs;
  // Bytes to fetch for a slice: those that its steps cover. They are at least
  // the slice's own bytes, and the compiler knows the number.
  constexpr std::size_t kFetch =
      2 * (kSteps * Step::kPairs + (kOverlaps ? LastStep::kPairs : 0)) *
      sizeof(Storage);
  const std::size_t slice_bytes = 2 * pairs * sizeof(Storage);

  const bool ordered = run.ordered, streams = run.streams;
  LineStream<Isa>* const stream = run.stream;
  const std::size_t front = stream != nullptr && pass < 0 ? pass_bytes : 0;
  constexpr auto kSize = static_cast<std::ptrdiff_t>(sizeof(Storage));
  const std::ptrdiff_t dst_step = run.dst_stride * kSize;
  std::ptrdiff_t dst_gap = run.dst_token_stride * kSize - count * dst_step;
  // The stream takes what is there as soon as `to` has reached the limit.
  char* to = reinterpret_cast<char*>(run.dst);
  std::uintptr_t limit = std::numeric_limits<std::uintptr_t>::max();
  if (stream != nullptr) {
    dst_gap = 0;
    to = stream->next() + front;
    limit = reinterpret_cast<std::uintptr_t>(stream->limit()) + front;
  }

  TokenRow<Step> token_row;
  for (std::size_t t = run.tokens; t > 0; --t) {
    const RowInMemory<Dtype> plain = {cosines, sines};
    RowInMemory<Dtype> row =
        ordered ? plain : token_row.Ordered(cosines, sines, pairs);
    for (std::size_t h = heads; h > 0; --h) {
      auto* const dst = reinterpret_cast<Storage*>(to);
      if (fetched != 0) {
        Fetch(reinterpret_cast<const char*>(from) + fetched,
              kSteps > 0 ? kFetch : slice_bytes);
      }
      LastStep last_step;
      if constexpr (kOverlaps) last_step.Load(from, last, pairs);
      std::size_t i = 0;
#pragma GCC unroll 8
      do {
        Step step;
        step.Load(from, i, pairs);
        step.Rotate(row, i, pairs);
        step.Store(i, pairs, dst);
        i += Step::kPairs;
      } while (i < whole);
      if constexpr (kOverlaps) {
        last_step.Rotate(Rest::kOrder == Step::kOrder ? row : plain, last,
                         pairs);
        last_step.Store(last, pairs, dst);
      }
      if (pass_bytes > 0) {
        const char* const passing = reinterpret_cast<const char*>(from) + pass;
        if (fetched != 0) Fetch(passing + fetched, pass_bytes);
        if (streams) {
          StreamBytes<Isa>(passing, to + pass, pass_bytes);
        } else {
          CopyBytes<Isa>(passing, to + pass, pass_bytes);
        }
      }
      row.cosines += head_row_step;
      row.sines += head_row_step;
      from += src_step;
      to += dst_step;
      if (reinterpret_cast<std::uintptr_t>(to) >= limit) {
        to = stream->Take(to - front) + front;
      }
    }
    from += src_gap;
    to += dst_gap;
    cosines += row_step;
    sines += row_step;
  }
  if (stream != nullptr) stream->set_next(to - front);
}

// What of a token's heads is rotated column by column: half of the least
// first-level cache, so that only the first column waits for the second.
constexpr std::size_t kColumnBytes = 16 * 1024;

// In place from a cache, column by column: kSteps steps of each head, while the
// rows of these steps stay in registers. Pairs are a multiple of a column's.
// Second-level cache, of a scaling in place, by steps and by columns: float32
// half-split 0.59 and 0.72, interleaved 0.45 and 0.60 (AVX2, Zen 3). Out of
// place, columns lose up to 0.2.
template <class Step, std::size_t kSteps>
void RunTokensByColumn(const TokenRun<typename Step::Dtype>& run) {
  using Dtype = typename Step::Dtype;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;
  constexpr std::size_t kColumn = kSteps * Step::kPairs;
  constexpr std::size_t kRowValues =  // of a pair
      Step::kRowVectors * Dtype::kLanes / Step::kPairs;
  const std::ptrdiff_t src_step = run.src_stride;
  const std::size_t pairs = run.pairs;
  const std::size_t group =
      std::max<std::size_t>(1, kColumnBytes / (2 * pairs * sizeof(Storage)));
  Storage* token = run.dst;
  const Real* cosines = run.cosines;
  const Real* sines = run.sines;
  TokenRow<Step> token_row;
  for (std::size_t t = run.tokens; t > 0; --t) {
    const RowInMemory<Dtype> row = token_row.Ordered(cosines, sines, pairs);
    Storage* first = token;
    for (std::size_t left = run.heads; left > 0;) {
      const std::size_t heads = std::min(left, group);
      for (std::size_t i = 0; i < pairs; i += kColumn) {
        const std::size_t value = i * kRowValues;
        const RowInRegisters<Dtype, kSteps * Step::kRowVectors> column(
            RowInMemory<Dtype>{row.cosines + value, row.sines + value});
        Storage* at = first;
#pragma GCC unroll 2
        for (std::size_t h = heads; h > 0; --h) {
          Step steps[kSteps];
#pragma GCC unroll 4
          for (std::size_t k = 0; k < kSteps; ++k) {
            steps[k].Load(at, i + k * Step::kPairs, pairs);
          }
#pragma GCC unroll 4
          for (std::size_t k = 0; k < kSteps; ++k) {
            steps[k].Rotate(column, k * Step::kPairs, kColumn);
          }
#pragma GCC unroll 4
          for (std::size_t k = 0; k < kSteps; ++k) {
            steps[k].Store(i + k * Step::kPairs, pairs, at);
          }
          at += src_step;
        }
      }
      first += static_cast<std::ptrdiff_t>(heads) * src_step;
      left -= heads;
    }
    token += run.dst_token_stride;
    cosines += run.row_stride;
    sines += run.row_stride;
  }
}

}  // namespace
}  // namespace posenc::simd
