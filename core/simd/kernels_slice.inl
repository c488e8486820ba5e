// The rotation of slices that share a row, by the step that suits their width.
// Part of kernels.inl.

#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_step.inl"

namespace posenc::simd {
namespace {

constexpr std::size_t kLine = 64;  // of the caches

inline void Fetch(const char* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(at + i);
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
                      step.Store(row, i, pairs, dst);
                      i += Step::kPairs;
                    } while (i <= last);
                    if constexpr (kOverlaps)
                      last_step.Store(row, last, pairs, dst);
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
    step.Store(RowInMemory<Dtype>{c, s}, 0, kPairs, out);
    std::memcpy(dst, out, half_bytes);
    std::memcpy(dst + pairs, out + second_out, half_bytes);
  });
}

// Slices of kSteps steps, whose row stays in registers. All of a slice is
// loaded before any of it is stored: 0.87 of a vector copy in the second-level
// cache against 0.65 with stores between the loads (float32, Zen 5).
template <class Step, std::size_t kSteps>
void RunStepsInRegisters(const SliceRun<typename Step::Dtype>& run) {
  using Dtype = typename Step::Dtype;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;
  if (run.lanes > 1 || run.row_stride != 0) {
    return RunSteps<Step, false>(run);
  }
  const RowInRegisters<Dtype, kSteps * Step::kRowVectors> row(
      RowInMemory<Dtype>{run.cosines[0], run.sines[0]});
  run.ForEach([&row](const Storage* src, Storage* dst, const Real*, const Real*)
                  __attribute__((always_inline)) {
                    constexpr std::size_t kPairs = kSteps * Step::kPairs;
                    Step steps[kSteps];
#pragma GCC unroll 8
                    for (std::size_t i = 0; i < kSteps; ++i) {
                      steps[i].Load(src, i * Step::kPairs, kPairs);
                    }
#pragma GCC unroll 8
                    for (std::size_t i = 0; i < kSteps; ++i) {
                      steps[i].Store(row, i * Step::kPairs, kPairs, dst);
                    }
                  });
}

// The order of a row's cosines c0 c1 c2 c3 ..
enum class RowOrder {
  kPlain,
  kTwins,   // c0 c0 c1 c1 .., and -s0 s0 -s1 s1 ..
  kPlanes,  // c0 c2 .. c1 c3 ..
};

// A row in another order. It is made once for all slices that share it.
template <class Real>
struct PreparedRow {
  static constexpr std::size_t kMaxPairs = 128;

  alignas(64) Real cosines[2 * kMaxPairs];
  alignas(64) Real sines[2 * kMaxPairs];

  void Fill(RowOrder order, const Real* cos, const Real* sin,
            std::size_t pairs) {
    if (order == RowOrder::kTwins) {
      for (std::size_t i = 0; i < pairs; ++i) {
        cosines[2 * i] = cosines[2 * i + 1] = cos[i];
        sines[2 * i] = -sin[i];
        sines[2 * i + 1] = sin[i];
      }
      return;
    }
    const std::size_t half = pairs / 2;
    for (std::size_t i = 0; i < half; ++i) {
      cosines[i] = cos[2 * i];
      cosines[half + i] = cos[2 * i + 1];
      sines[i] = sin[2 * i];
      sines[half + i] = sin[2 * i + 1];
    }
  }
};

// How slices are rotated.
template <class Dtype>
struct Method {
  RunSlices<Dtype> run;
  RowOrder order;
  bool streams;  // past the caches
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

// kStream: a step that overlaps others has no alignment.
template <class Step, bool kStream>
Method<typename Step::Dtype> Steps(std::size_t pairs, RowOrder order) {
  if constexpr (kFitsRegisters<Step, 1>) {
    if (pairs == Step::kPairs)
      return {&RunStepsInRegisters<Step, 1>, order, kStream};
  }
  if constexpr (kFitsRegisters<Step, 2>) {
    if (pairs == 2 * Step::kPairs)
      return {&RunStepsInRegisters<Step, 2>, order, kStream};
  }
  if constexpr (kFitsRegisters<Step, 4>) {
    if (pairs == 4 * Step::kPairs)
      return {&RunStepsInRegisters<Step, 4>, order, kStream};
  }
  if (pairs % Step::kPairs == 0)
    return {&RunSteps<Step, false>, order, kStream};
  if constexpr (kStream) return {nullptr, order, true};
  return {&RunSteps<Step, true>, order, false};
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
      !own_rows && pairs <= PreparedRow<typename Dtype::Real>::kMaxPairs;
  // Pairs of bfloat16 are cheaper to take apart than to keep as twins.
  if constexpr (kIn == kInterleaved && kOut == kInterleaved &&
                !kIsBf16<Dtype>) {
    using Twin = TwinStep<Dtype, kStream>;
    if (prepared) {
      if (pairs >= Twin::kPairs)
        return Steps<Twin, kStream>(pairs, RowOrder::kTwins);
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
        return Steps<Plane, kStream>(pairs, RowOrder::kPlanes);
      }
    }
    using Half = HalfStep<Dtype, kStream>;
    if (pairs >= Half::kPairs)
      return Steps<Half, kStream>(pairs, RowOrder::kPlain);
  }
  if constexpr (kIsBf16<Dtype> && kOut == kInterleaved) {
    using One = OneStep<Dtype, kIn, kOut, kStream>;
    if (pairs >= One::kPairs) {
      return Steps<One, kStream>(pairs, RowOrder::kPlain);
    }
  }
  if constexpr (kStream) {
    return {nullptr, RowOrder::kPlain, true};
  } else {
    using One = OneStep<Dtype, kIn, kOut>;
    if (pairs >= One::kPairs) {
      return Steps<One, false>(pairs, RowOrder::kPlain);
    }
    return {&RunPadded<One, kIn, kOut, 1>, RowOrder::kPlain, false};
  }
}

}  // namespace
}  // namespace posenc::simd
