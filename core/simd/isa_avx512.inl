// Loads and stores that both AVX-512 files share. See kernels.inl.

#pragma once

#include <immintrin.h>

#include <cstdint>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

struct Avx512 {
  using Arch = xsimd::avx512bw;
  using Floats = xsimd::batch<float, Arch>;
  using Words = xsimd::batch<std::uint32_t, Arch>;

  static __m256i Load16(const std::uint16_t* src) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
  }

  static Floats LoadF16(const std::uint16_t* src) {
    return _mm512_cvtph_ps(Load16(src));
  }

  static void StoreF16(const Floats& x, std::uint16_t* dst) {
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(dst),
        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  static Floats LoadBf16(const std::uint16_t* src) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(Load16(src)), 16));
  }

  static Words RoundBf16(const Floats& x) { return RoundBf16WithIntegers(x); }

  static void StoreHigh16(const Words& words, std::uint16_t* dst) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)));
  }
};

}  // namespace
}  // namespace posenc::simd
