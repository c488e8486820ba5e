// AVX-512 with the bfloat16 conversion.

#include "core/simd/isa_avx512.inl"
#include "core/simd/kernel_tables.h"
#include "core/simd/kernels.inl"

namespace posenc::simd {
namespace {

struct Avx512Bf16 : Avx512 {
  static Words RoundBf16(const Floats& x) {
    // The instruction takes subnormals for 0; other sets do not.
    constexpr int kSubnormal = 0x20;  // of VFPCLASSPS
    if (_mm512_fpclass_ps_mask(x, kSubnormal) != 0) {
      return RoundBf16WithIntegers(x);
    }
    const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(x);
    return Words(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16));
  }
};

}  // namespace

constinit const KernelTable kAvx512Bf16Kernels =
    MakeKernels<Avx512Bf16>("avx512_bf16");

}  // namespace posenc::simd
