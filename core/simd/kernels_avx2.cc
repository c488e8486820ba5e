// AVX2 with FMA and F16C. Only MulAdd and MulSub fuse products and sums.

#include <immintrin.h>

#include <cstdint>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernel_tables.h"
#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

struct Isa : Batches<xsimd::fma3<xsimd::avx2>> {
  static constexpr int kRegisters = 16;
  static constexpr bool kConvertsBf16 = false;
  using Bf16Rounding = RoundingHalfUp<Isa>;

  static Floats SwapPairs(const Floats& x) {
    return _mm256_permute_ps(x, 0b10110001);
  }
  static Doubles SwapPairs(const Doubles& x) {
    return _mm256_permute_pd(x, 0b0101);
  }

  // Return a * b + c and a * b - c, rounded once.
  static Doubles MulAdd(const Doubles& a, const Doubles& b, const Doubles& c) {
    return _mm256_fmadd_pd(a, b, c);
  }
  static Doubles MulSub(const Doubles& a, const Doubles& b, const Doubles& c) {
    return _mm256_fmsub_pd(a, b, c);
  }

  static Floats NarrowDoubles(const Doubles& low, const Doubles& high) {
    return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
  }
  // Returns the lower 32 bits of each double, in any order.
  static Ints LowWords(const Doubles& low, const Doubles& high) {
    return _mm256_castps_si256(_mm256_shuffle_ps(
        _mm256_castpd_ps(low), _mm256_castpd_ps(high), 0b10001000));
  }

  // Orders streamed stores before all later stores.
  static void EndStreams() { _mm_sfence(); }
  static void Stream(const Floats& x, float* dst) { _mm256_stream_ps(dst, x); }
  static void Stream(const Doubles& x, double* dst) {
    _mm256_stream_pd(dst, x);
  }
  static void StreamLine(const void* src, void* dst) {
    const auto* from = static_cast<const __m256i*>(src);
    auto* to = static_cast<__m256i*>(dst);
    _mm256_stream_si256(to, _mm256_loadu_si256(from));
    _mm256_stream_si256(to + 1, _mm256_loadu_si256(from + 1));
  }
  template <bool kStream>
  static void StoreWords(__m256i x, std::uint16_t* dst) {
    auto* const to = reinterpret_cast<__m256i*>(dst);
    if constexpr (kStream) {
      _mm256_stream_si256(to, x);
    } else {
      _mm256_storeu_si256(to, x);
    }
  }

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

  template <int kRounding>
  static __m256i TwoF16(const Floats& x, const Floats& y) {
    return _mm256_set_m128i(_mm256_cvtps_ph(y, kRounding),
                            _mm256_cvtps_ph(x, kRounding));
  }

  static Floats LoadBf16(const std::uint16_t* src) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(Load8(src)), 16));
  }

  static void StoreHigh16(const Words& words, std::uint16_t* dst) {
    const __m256i low = _mm256_srli_epi32(words, 16);
    // Packing works within 128-bit lanes; the permutation joins the lower
    // halves of both lanes.
    const __m256i packed = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(low, low), _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst),
                     _mm256_castsi256_si128(packed));
  }

  static __m256i UpperHalves(const Words& x, const Words& y) {
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi32(_mm256_srli_epi32(x, 16), _mm256_srli_epi32(y, 16)),
        _MM_SHUFFLE(3, 1, 2, 0));
  }
  static __m256i UpperPairs(const Words& x, const Words& y) {
    return _mm256_blend_epi16(_mm256_srli_epi32(x, 16), y, 0xaa);
  }

  static Words LoadBytes(const std::uint8_t* src) {
    return _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(src)));
  }
  static void StoreBytes(const Words& x, std::uint8_t* dst) {
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(x),
                                           _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(dst),
                     _mm_packus_epi16(words, words));
  }

  // Load and store byte vectors whose halves are at different addresses.
  static __m256i LoadHalves(const void* low, const void* high) {
    return _mm256_loadu2_m128i(static_cast<const __m128i*>(high),
                               static_cast<const __m128i*>(low));
  }
  static void StoreHalves(__m256i x, void* low, void* high) {
    _mm256_storeu2_m128i(static_cast<__m128i*>(high),
                         static_cast<__m128i*>(low), x);
  }
};

}  // namespace
}  // namespace posenc::simd

#include "core/simd/kernels.inl"

namespace posenc::simd {

constinit const KernelTable kAvx2Kernels = MakeKernels<Isa>("avx2");

}  // namespace posenc::simd
