// The rotation of a slice of FP8, for instruction sets that convert float16.
// Part of kernels.inl.
//
//   float16  s eeeee mmmmmmmmmm
//   E5M2     s eeeee mm
//   E4M3     s eeee mmm
//
// A code of E5M2 is the upper byte of a float16. A code of E4M3 becomes a
// float16 if all bits except the sign move down by one bit; this float16 is
// 2^-8 times the number. Both conversions are right for subnormal numbers, too.
// So a few operations on 16-bit words make float16 numbers of the even bytes of
// a vector, and of its odd bytes. Even and odd bytes are x and y of interleaved
// pairs. For half-split pairs, the row of cosines and sines is also split into
// even and odd elements (RowOrder::kPlanes).
//
// Results are cut to float16, and then rounded half up to codes. This rounding
// is wrong only if a result is exactly halfway between two codes and the lower
// code is even. A float32 that ends with 16 zeros may be such a result.
//
// A slice is stored after all of it has been rotated. A slice with a NaN, or
// with a result that overflows, is rotated again with the conversions of
// kernels_float8.inl.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_float8.inl"
#include "core/simd/kernels_slice.inl"
#include "core/simd/kernels_step.inl"
#include "core/simd/kernels_stream.inl"

namespace posenc::simd {
namespace {

// kWidth is the number of pairs; 0 if the compiler does not know it. A known
// width makes the rotation 1.13 times as fast (Xeon).
template <class DtypeType, PairingIndex kPairing, bool kStream,
          std::size_t kWidth>
class Float8Slice {
 public:
  using Dtype = DtypeType;
  using Storage = typename Dtype::Storage;
  using Row = RowInMemory<Dtype>;
  static constexpr RowOrder kOrder =
      kPairing == kHalf ? RowOrder::kPlanes : RowOrder::kPlain;
  static constexpr std::size_t kPairs = kWidth;

  // True if this class can rotate the slices of the job.
  static bool Takes(const RotateJob& job) {
    return job.pairs >= kStep && job.pairs <= kMaxPairs &&
           (kPairing == kInterleaved || job.pairs % 2 == 0) &&
           (!kScales || CanScale(job));
  }

  [[gnu::always_inline]] static void Rotate(const Row& row, const Storage* src,
                                            Storage* dst, std::size_t pairs) {
    // The last step may overlap the previous step.
    const std::size_t last = pairs - kStep;
    alignas(64) char rotated[2 * kMaxPairs];
    Bytes most_in(0);
    Shorts most_out(0);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < pairs; i += kStep) {
      const std::size_t first = std::min(i, last);
      // x and y of half-split pairs, or two vectors of interleaved pairs.
      const std::size_t lower = kPairing == kHalf ? first : 2 * first;
      const std::size_t upper = lower + (kPairing == kHalf ? pairs : kStep);
      const Shorts codes = Isa::LoadHalves(src + lower, src + upper);
      most_in = xsimd::max(most_in, BitCast<Bytes>(codes) & Bytes(0x7f));
      Batch even0, even1, odd0, odd1;
      Widen(codes << 8, &even0, &even1);
      Widen(codes, &odd0, &odd1);
      if constexpr (kPairing == kHalf) {
        const std::size_t even = first / 2, odd = (pairs + first) / 2;
        RotateBatch(row.Cosines(even), row.Sines(even), &even0, &even1);
        RotateBatch(row.Cosines(odd), row.Sines(odd), &odd0, &odd1);
      } else {
        const std::size_t next = first + kLanes;
        RotateBatch(row.Cosines(first), row.Sines(first), &even0, &odd0);
        RotateBatch(row.Cosines(next), row.Sines(next), &even1, &odd1);
      }
      Shorts even = Cut(even0, even1, &most_out);
      Shorts odd = Cut(odd0, odd1, &most_out);
      if (MayTie(even0, even1, odd0, odd1)) [[unlikely]] {
        even = TiesToEven(even, even0, even1);
        odd = TiesToEven(odd, odd0, odd1);
      }
      Isa::StoreHalves(((even + Shorts(0x80)) >> 8) |
                           ((odd + Shorts(0x80)) & Shorts(0xff00)),
                       rotated + lower, rotated + upper);
    }
    if (xsimd::any(BitCast<SignedShorts>(most_out) >= SignedShorts(kOver)) ||
        (kScales && xsimd::any(most_in == Bytes(kNan8)))) [[unlikely]] {
      return RotateCarefully(row, src, dst, pairs);
    }
    auto* const to = reinterpret_cast<char*>(dst);
    if constexpr (kStream) {
      StreamBytes<Isa>(rotated, to, 2 * pairs);
    } else {
      CopyBytes<Isa>(rotated, to, 2 * pairs);
    }
  }

 private:
  using Isa = typename Dtype::Isa;
  using Format = typename Dtype::Format;
  using Batch = typename Dtype::Batch;
  using Words = typename Dtype::Words;
  using Shorts = xsimd::batch<std::uint16_t, typename Isa::Arch>;
  using SignedShorts = xsimd::batch<std::int16_t, typename Isa::Arch>;
  using Bytes = xsimd::batch<std::uint8_t, typename Isa::Arch>;
  static constexpr std::size_t kLanes = Dtype::kLanes;
  static constexpr std::size_t kStep = 2 * kLanes;
  static constexpr std::size_t kMaxPairs = PreparedRow<Isa, float>::kMaxPairs;
  // True for E4M3: the rotation then computes with 2^-8 times each number.
  static constexpr bool kScales = Format::kMantissa == 3;
  // The bits of the least float16 magnitude that rounds to more than the
  // format's largest number.
  static constexpr int kOver = ((Format::kLargest << 8) + 0x80) >>
                               (kScales ? 1 : 0);

  // True if a rotation of 2^-8 times each number gives exactly 2^-8 times each
  // product. For this, every cosine and sine must be 0, or far from the ends of
  // float32's range.
  static bool CanScale(const RotateJob& job) {
    const Batch down(0x1p-20F), up(0x1p40F);
    const auto* row = static_cast<const float*>(job.table);
    for (std::size_t t = 0; t < job.tokens;
         ++t, row += job.table_token_stride) {
      for (const float* part : {row, row + job.table_sine_offset}) {
        for (std::size_t i = 0; i < job.pairs; i += kLanes) {
          const Batch x =
              Batch::load_unaligned(part + std::min(i, job.pairs - kLanes));
          if (xsimd::any(x * down * up * down != x)) return false;
        }
      }
    }
    return true;
  }

  // Widens the codes in the upper bytes. The words go through memory, because a
  // conversion from memory is one operation, and a conversion from a register
  // is two. This memory stays in the first-level cache. The asm statement keeps
  // compilers from using registers.
  [[gnu::always_inline]] static void Widen(const Shorts& codes, Batch* x,
                                           Batch* y) {
    const Shorts words =
        kScales ? BitCast<Shorts>(BitCast<SignedShorts>(codes) >> 1) &
                      Shorts(0xbf80)
                : codes & Shorts(0xff00);
    alignas(64) std::uint16_t memory[kStep];
    words.store_aligned(memory);
    asm("" : "+m"(memory));
    *x = Isa::LoadF16(memory);
    *y = Isa::LoadF16(memory + kLanes);
  }

  // Returns words with a code in the upper byte. The lower byte has the bits
  // that follow the code.
  [[gnu::always_inline]] static Shorts Cut(const Batch& x, const Batch& y,
                                           Shorts* most) {
    const Shorts words = Isa::template TwoF16<kToZero>(x, y);
    const Shorts magnitude = words & Shorts(0x7fff);
    *most = xsimd::max(*most, magnitude);
    return kScales ? words + magnitude : words;
  }

  [[gnu::always_inline]] static bool MayTie(const Batch& a, const Batch& b,
                                            const Batch& c, const Batch& d) {
    const Shorts least =
        xsimd::min(xsimd::min(BitCast<Shorts>(a), BitCast<Shorts>(b)),
                   xsimd::min(BitCast<Shorts>(c), BitCast<Shorts>(d)));
    return xsimd::any((BitCast<Words>(least) & Words(0xffffu)) == Words(0u));
  }

  // Decrements the results that are exactly halfway between two codes and would
  // round up to an odd code. Such a result is a float16 number, so rounding it
  // up and rounding it down to float16 give the same bits.
  [[gnu::always_inline]] static Shorts TiesToEven(const Shorts& cut,
                                                  const Batch& x,
                                                  const Batch& y) {
    const Shorts up = Isa::template TwoF16<kUp>(x, y);
    const Shorts down = Isa::template TwoF16<kDown>(x, y);
    const auto halfway = (cut & Shorts(0x1ff)) == Shorts(0x80);
    return xsimd::select((up == down) & halfway, cut - Shorts(1), cut);
  }

  [[gnu::noinline]] static void RotateCarefully(const Row& row,
                                                const Storage* src,
                                                Storage* dst,
                                                std::size_t pairs) {
    using Step = std::conditional_t<kPairing == kHalf, PlaneStep<Dtype, false>,
                                    OneStep<Dtype, kPairing, kPairing>>;
    AnySlice<Step>::Rotate(row, src, dst, pairs);
  }
};

}  // namespace
}  // namespace posenc::simd
