// The rotation of slices of any width, step by step. Part of kernels.inl.

#pragma once

#include <cstddef>
#include <cstring>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_row.inl"
#include "core/simd/kernels_step.inl"

namespace posenc::simd {
namespace {

constexpr std::size_t kLine = 64;  // of the caches
constexpr std::size_t kPage = 4096;

// Inlined always: to g++ 12 a call of it has no effect, and is left out.
// kCache: 3 is the first level, 2 the second.
template <int kCache = 3>
[[gnu::always_inline]] inline void Fetch(const char* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(at + i, 0, kCache);
  }
}

// Slices that stand in up to kMaxLanes places: `count` in each place, strides
// apart, rotated by the row of that place. The places take turns, slice by
// slice.
constexpr std::size_t kMaxLanes = 4;

template <class DtypeType>
struct SliceRun {
  using Dtype = DtypeType;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;

  std::size_t lanes;
  const Storage* src[kMaxLanes];
  Storage* dst[kMaxLanes];
  const Real* cosines[kMaxLanes];  // of a PreparedRow, if the step is for one
  const Real* sines[kMaxLanes];
  std::ptrdiff_t src_stride;
  std::ptrdiff_t dst_stride;
  std::ptrdiff_t row_stride;  // 0: the slices of a place share their row
  std::size_t count;
  std::size_t pairs;
  std::ptrdiff_t ahead;  // bytes from src to what is fetched; 0: nothing is
  bool from_memory;      // not from a cache

  // Calls rotate(src, dst, cosines, sines) for each slice.
  //
  // What the loop needs is in locals: vector stores may alias anything in
  // memory, so everything else would be loaded again after each.
  template <class Function>
  [[gnu::always_inline]] void ForEach(const Function& rotate) const {
    const std::size_t n = count, places = lanes;
    const std::size_t bytes = 2 * pairs * sizeof(Storage);
    const std::ptrdiff_t fetched = ahead;
    const std::ptrdiff_t src_step = src_stride, dst_step = dst_stride;
    const std::ptrdiff_t row_step = row_stride;
    if (places == 1) {
      const Storage* from = src[0];
      Storage* to = dst[0];
      const Real* c = cosines[0];
      const Real* s = sines[0];
      if (fetched == 0) {
        for (std::size_t i = n; i > 0; --i) {
          rotate(from, to, c, s);
          from += src_step;
          to += dst_step;
          c += row_step;
          s += row_step;
        }
        return;
      }
      for (std::size_t i = n; i > 0; --i) {
        Fetch(reinterpret_cast<const char*>(from) + fetched, bytes);
        rotate(from, to, c, s);
        from += src_step;
        to += dst_step;
        c += row_step;
        s += row_step;
      }
      return;
    }
    std::ptrdiff_t src_offset = 0, dst_offset = 0, row_offset = 0;
    for (std::size_t i = n; i > 0; --i) {
      for (std::size_t k = 0; k < places; ++k) {
        const Storage* const from = src[k] + src_offset;
        Fetch(reinterpret_cast<const char*>(from) + fetched, bytes);
        rotate(from, dst[k] + dst_offset, cosines[k] + row_offset,
               sines[k] + row_offset);
      }
      src_offset += src_step;
      dst_offset += dst_step;
      row_offset += row_step;
    }
  }
};

template <class Dtype>
using RunSlices = void (*)(const SliceRun<Dtype>&);

// Slices of at least one step. What is left over is done by one more step that
// overlaps the others. It is loaded before anything is stored, so that nothing
// is rotated twice if src is dst.
template <class Step, bool kOverlaps>
void RunSteps(const SliceRun<typename Step::Dtype>& run) {
  using Dtype = typename Step::Dtype;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;
  const std::size_t pairs = run.pairs, last = pairs - Step::kPairs;
  run.ForEach([ pairs, last ](const Storage* src, Storage* dst,
                              const Real* cosines, const Real* sines)
                  __attribute__((always_inline)) {
                    const RowInMemory<Dtype> row = {cosines, sines};
                    Step last_step;
                    if constexpr (kOverlaps) last_step.Load(src, last, pairs);
                    std::size_t i = 0;
                    do {
                      Step step;
                      step.Load(src, i, pairs);
                      step.Rotate(row, i, pairs);
                      step.Store(i, pairs, dst);
                      i += Step::kPairs;
                    } while (i <= last);
                    if constexpr (kOverlaps) {
                      last_step.Rotate(row, last, pairs);
                      last_step.Store(last, pairs, dst);
                    }
                  });
}

// Slices of fewer pairs than a step has, through padded copies.
// kIn, kOut: of the step. kCopies: values that the row has for each pair.
template <class Step, PairingIndex kIn, PairingIndex kOut, std::size_t kCopies>
void RunPadded(const SliceRun<typename Step::Dtype>& run) {
  using Dtype = typename Step::Dtype;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;
  constexpr std::size_t kPairs = Step::kPairs;
  const std::size_t pairs = run.pairs;
  const std::size_t half_bytes = pairs * sizeof(Storage);
  const std::size_t row_bytes = kCopies * pairs * sizeof(Real);
  Storage in[2 * kPairs] = {}, out[2 * kPairs];
  Real c[kCopies * kPairs] = {}, s[kCopies * kPairs] = {};
  // The second half of a padded half-split slice starts at kPairs.
  const std::size_t second_in = kIn == kHalf ? kPairs : pairs;
  const std::size_t second_out = kOut == kHalf ? kPairs : pairs;
  run.ForEach([&](const Storage* src, Storage* dst, const Real* cosines,
                  const Real* sines) {
    std::memcpy(c, cosines, row_bytes);
    std::memcpy(s, sines, row_bytes);
    std::memcpy(in, src, half_bytes);
    std::memcpy(in + second_in, src + pairs, half_bytes);
    Step step;
    step.Load(in, 0, kPairs);
    step.Rotate(RowInMemory<Dtype>{c, s}, 0, kPairs);
    step.Store(0, kPairs, out);
    std::memcpy(dst, out, half_bytes);
    std::memcpy(dst + pairs, out + second_out, half_bytes);
  });
}

}  // namespace
}  // namespace posenc::simd
