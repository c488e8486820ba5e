// AVX-512's conversion to bfloat16, and the kernels that use it.

#include "core/simd/isa_avx512.inl"
#include "core/simd/kernel_tables.h"
#include "core/simd/kernels.inl"

namespace posenc::simd {
namespace {

// The instruction rounds like RoundBf16, but flushes subnormals to 0. One test
// of 32 results for zeros finds all flushed numbers; testing the 32 inputs for
// subnormals would cost four more operations. One branch for each slice
// (Bf16Rounding) is 1.2 times as fast as one branch for each line (heads of 128
// in the second-level cache, Zen 5).
struct Avx512Bf16 : Avx512 {
  static constexpr bool kConvertsBf16 = true;

  // The check passes if no result is zero.
  class Bf16Rounding {
   public:
    __m512i Two(const Floats& x, const Floats& y) {
      const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(y, x);
      nonzero_ = _mm512_mask_test_epi16_mask(nonzero_, rounded,
                                             _mm512_set1_epi16(0x7f80));
      return rounded;
    }
    __m512i Pairs(const Floats& x, const Floats& y) {
      return Zipped(Two(x, y));
    }
    bool Passed() const { return nonzero_ == 0xffffffff; }

   private:
    __mmask32 nonzero_ = 0xffffffff;
  };

  static __m512i Zipped(__m512i rounded) {
    const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11,
                                         26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(zip, rounded);
  }

  static bool HasZero(__m512i rounded) {
    return _mm512_testn_epi16_mask(rounded, _mm512_set1_epi16(0x7f80)) != 0;
  }
  static bool IsSubnormal(const Floats& x) {
    constexpr int kSubnormal = 0x20;  // a class of VFPCLASSPS
    return _mm512_fpclass_ps_mask(x, kSubnormal) != 0;
  }

  static void NarrowBf16(const Floats& x, std::uint16_t* dst) {
    if (IsSubnormal(x)) return Bf16<Avx512>::Narrow(x, dst);
    Store16((__m256i)_mm512_cvtneps_pbh(x), dst);
  }
  template <bool kStream>
  static void StoreTwoBf16(const Floats& x, const Floats& y,
                           std::uint16_t* dst) {
    const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(y, x);
    if (HasZero(rounded) && (IsSubnormal(x) || IsSubnormal(y))) [[unlikely]] {
      return Bf16<Avx512>::StoreTwo<kStream>(x, y, dst);
    }
    StoreWords<kStream>(rounded, dst);
  }
  template <bool kStream>
  static void StorePairsBf16(const Floats& x, const Floats& y,
                             std::uint16_t* dst) {
    const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(y, x);
    if (HasZero(rounded) && (IsSubnormal(x) || IsSubnormal(y))) [[unlikely]] {
      return Bf16<Avx512>::StoreInterleaved<kStream>(x, y, dst);
    }
    StoreWords<kStream>(Zipped(rounded), dst);
  }
};

}  // namespace

// This table has only the kernels for bfloat16. dispatch.cc takes all other
// kernels from kAvx512Kernels.
constinit const KernelTable kAvx512Bf16Kernels = [] {
  KernelTable table = {};
  table.name = "avx512_bf16";
  SetDtype<Bf16<Avx512Bf16>>(kBf16, &table);
  return table;
}();

}  // namespace posenc::simd
