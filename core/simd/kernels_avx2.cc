// AVX2 with FMA and F16C (no product is fused; xsimd's plain avx2 is as good,
// but this is the one that later kernels may fuse in).

#include <immintrin.h>

#include <cstdint>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernel_tables.h"
#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

struct Isa {
  using Arch = xsimd::fma3<xsimd::avx2>;
  using Floats = xsimd::batch<float, Arch>;
  using Words = xsimd::batch<std::uint32_t, Arch>;

  static __m128i Load8(const std::uint16_t* src) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
  }

  static Floats LoadF16(const std::uint16_t* src) {
    return _mm256_cvtph_ps(Load8(src));
  }

  static void StoreF16(const Floats& x, std::uint16_t* dst) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }

  static Floats LoadBf16(const std::uint16_t* src) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(Load8(src)), 16));
  }

  static Words RoundBf16(const Floats& x) { return RoundBf16WithIntegers(x); }

  static void StoreHigh16(const Words& words, std::uint16_t* dst) {
    const __m256i low = _mm256_srli_epi32(words, 16);
    // Packing works within 128-bit lanes: their lower quarters are wanted.
    const __m256i packed = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(low, low), _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst),
                     _mm256_castsi256_si128(packed));
  }
};

}  // namespace
}  // namespace posenc::simd

#include "core/simd/kernels.inl"

namespace posenc::simd {

constinit const KernelTable kAvx2Kernels = MakeKernels<Isa>("avx2");

}  // namespace posenc::simd
