// The rotation of whole tokens, if registers do not hold a slice, or if the
// compiler does not know its width. Part of kernels.inl.

#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "core/simd/kernels.h"
#include "core/simd/kernels_bytes.inl"
#include "core/simd/kernels_row.inl"
#include "core/simd/kernels_slice.inl"
#include "core/simd/kernels_tokens.inl"

namespace posenc::simd {
namespace {

// Step by step, as RunSteps does it, but many tokens in one call. Second-level
// cache, of a vector copy, by a call for each token and so: float64 half-split
// 0.74 and 0.94, interleaved 0.75 and 0.83, float16 0.46 and 0.56 (AVX2, Zen
// 3).
template <class Step, bool kOverlaps>
void RunTokensByStep(const TokenRun<typename Step::Dtype>& run) {
  using Dtype = typename Step::Dtype;
  using Isa = typename Dtype::Isa;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;
  const Storage* from = run.src;
  Storage* to = run.dst;
  const Real* cosines = run.cosines;
  const Real* sines = run.sines;
  const std::ptrdiff_t src_step = run.src_stride, dst_step = run.dst_stride;
  const std::ptrdiff_t row_step = run.row_stride, fetched = run.ahead;
  const std::ptrdiff_t pass = run.pass;
  const std::size_t heads = run.heads, pass_bytes = run.pass_bytes;
  const auto count = static_cast<std::ptrdiff_t>(heads);
  const std::ptrdiff_t src_gap = run.src_token_stride - count * src_step;
  const std::ptrdiff_t dst_gap = run.dst_token_stride - count * dst_step;
  const std::size_t pairs = run.pairs, last = pairs - Step::kPairs;
  TokenRow<Step> token_row;
  for (std::size_t t = run.tokens; t > 0; --t) {
    const RowInMemory<Dtype> row = token_row.Ordered(cosines, sines, pairs);
    for (std::size_t h = heads; h > 0; --h) {
      if (fetched != 0) {
        Fetch(reinterpret_cast<const char*>(from) + fetched,
              2 * pairs * sizeof(Storage));
      }
      Step last_step;
      if constexpr (kOverlaps) last_step.Load(from, last, pairs);
      std::size_t i = 0;
      do {
        Step step;
        step.Load(from, i, pairs);
        step.Rotate(row, i, pairs);
        step.Store(i, pairs, to);
        i += Step::kPairs;
      } while (i <= last);
      if constexpr (kOverlaps) {
        last_step.Rotate(row, last, pairs);
        last_step.Store(last, pairs, to);
      }
      if (pass_bytes > 0) {
        const char* const passing = reinterpret_cast<const char*>(from) + pass;
        if (fetched != 0) Fetch(passing + fetched, pass_bytes);
        StreamBytes<Isa>(passing, reinterpret_cast<char*>(to) + pass,
                         pass_bytes);
      }
      from += src_step;
      to += dst_step;
    }
    from += src_gap;
    to += dst_gap;
    cosines += row_step;
    sines += row_step;
  }
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
