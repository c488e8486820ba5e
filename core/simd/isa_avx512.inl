// The operations that both AVX-512 files share, such as loads and stores. See
// kernels.inl.

#pragma once

#include <immintrin.h>

#include <cstdint>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

struct Avx512 : Batches<xsimd::avx512bw> {
  static constexpr int kRegisters = 32;
  static constexpr bool kConvertsBf16 = false;
  using Bf16Rounding = RoundingHalfUp<Avx512>;

  static __m256i Load16(const std::uint16_t* src) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
  }
  static void Store16(__m256i x, std::uint16_t* dst) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), x);
  }

  static Floats SwapPairs(const Floats& x) {
    return _mm512_permute_ps(x, 0b10110001);
  }
  static Doubles SwapPairs(const Doubles& x) {
    return _mm512_permute_pd(x, 0b01010101);
  }

  // Return a * b + c and a * b - c, rounded once. xsimd 8.1's functions round
  // twice.
  static Doubles MulAdd(const Doubles& a, const Doubles& b, const Doubles& c) {
    return _mm512_fmadd_pd(a, b, c);
  }
  static Doubles MulSub(const Doubles& a, const Doubles& b, const Doubles& c) {
    return _mm512_fmsub_pd(a, b, c);
  }

  static Floats NarrowDoubles(const Doubles& low, const Doubles& high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)),
                              _mm512_cvtpd_ps(high), 1);
  }
  // Returns the lower 32 bits of each double, in any order.
  static Ints LowWords(const Doubles& low, const Doubles& high) {
    return _mm512_castps_si512(_mm512_shuffle_ps(
        _mm512_castpd_ps(low), _mm512_castpd_ps(high), 0b10001000));
  }

  // The functions below are for kernels_doubt.inl.
  using Lanes = __mmask16;
  static constexpr Lanes kAllLanes = 0xffff;
  // Returns the lanes of `lanes` in which x has at least one of the bits
  // `bits`.
  static Lanes HasAny(Lanes lanes, const Ints& x, const Ints& bits) {
    return _mm512_mask_test_epi32_mask(lanes, x, bits);
  }
  static Floats LesserMagnitudes(const Floats& x, const Floats& y) {
    constexpr int kWithoutSign = 0b1000, kMinimumOfMagnitudes = 0b10;
    return _mm512_range_ps(x, y, kWithoutSign | kMinimumOfMagnitudes);
  }
  // True if `lanes` are all lanes, and x is at least `least` in each lane.
  static bool AllAtLeast(Lanes lanes, const Floats& x, const Floats& least) {
    return _mm512_mask_cmp_ps_mask(lanes, x, least, _CMP_GE_OQ) == kAllLanes;
  }

  // Orders streamed stores before all later stores.
  static void EndStreams() { _mm_sfence(); }
  static void Stream(const Floats& x, float* dst) { _mm512_stream_ps(dst, x); }
  static void Stream(const Doubles& x, double* dst) {
    _mm512_stream_pd(dst, x);
  }
  static void StreamLine(const void* src, void* dst) {
    _mm512_stream_si512(static_cast<__m512i*>(dst), _mm512_loadu_si512(src));
  }
  template <bool kStream>
  static void StoreWords(__m512i x, std::uint16_t* dst) {
    if constexpr (kStream) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(dst), x);
    } else {
      _mm512_storeu_si512(dst, x);
    }
  }

  static Floats LoadF16(const std::uint16_t* src) {
    return _mm512_cvtph_ps(Load16(src));
  }
  static void StoreF16(const Floats& x, std::uint16_t* dst) {
    Store16(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
            dst);
  }

  template <int kRounding>
  static __m512i TwoF16(const Floats& x, const Floats& y) {
    constexpr int kQuiet = kRounding | _MM_FROUND_NO_EXC;
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm512_cvtps_ph(x, kQuiet)),
        _mm512_cvtps_ph(y, kQuiet), 1);
  }

  static Floats LoadBf16(const std::uint16_t* src) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(Load16(src)), 16));
  }
  // One permutation puts 16 elements into upper halves and zeroes the lower
  // halves. Widening and shifting would be two operations.
  static void LoadTwoBf16(const std::uint16_t* src, Floats* x, Floats* y) {
    const __m512i both = _mm512_loadu_si512(src);
    constexpr __mmask32 kUpperHalves = 0xaaaaaaaa;
    const __m512i first =
        _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0,
                         7, 0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
    const __m512i second = _mm512_set_epi16(
        31, 0, 30, 0, 29, 0, 28, 0, 27, 0, 26, 0, 25, 0, 24, 0, 23, 0, 22, 0,
        21, 0, 20, 0, 19, 0, 18, 0, 17, 0, 16, 0);
    *x = _mm512_castsi512_ps(
        _mm512_maskz_permutexvar_epi16(kUpperHalves, first, both));
    *y = _mm512_castsi512_ps(
        _mm512_maskz_permutexvar_epi16(kUpperHalves, second, both));
  }

  static void StoreHigh16(const Words& words, std::uint16_t* dst) {
    Store16(_mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)), dst);
  }
  static __m512i UpperHalves(const Words& x, const Words& y) {
    const __m512i upper_halves = _mm512_set_epi16(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29,
        27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(x, upper_halves, y);
  }
  static __m512i UpperPairs(const Words& x, const Words& y) {
    constexpr __mmask32 kUpperHalves = 0xaaaaaaaa;
    const __m512i upper = _mm512_srli_epi32(x, 16), all = y;
    return _mm512_mask_blend_epi16(kUpperHalves, upper, all);
  }

  static Words LoadBytes(const std::uint8_t* src) {
    return _mm512_cvtepu8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(src)));
  }
  static void StoreBytes(const Words& x, std::uint8_t* dst) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), _mm512_cvtepi32_epi8(x));
  }

  // Load and store byte vectors whose halves are at different addresses.
  static __m512i LoadHalves(const void* low, const void* high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_epi8(low)),
                              _mm256_loadu_epi8(high), 1);
  }
  static void StoreHalves(__m512i x, void* low, void* high) {
    _mm256_storeu_epi8(low, _mm512_castsi512_si256(x));
    _mm256_storeu_epi8(high, _mm512_extracti64x4_epi64(x, 1));
  }

  // Does the same as RoundBf16 of kernels_convert.inl. If the bfloat16's last
  // bit is 1, a masked addition adds 0x8000 instead of 0x7fff, so that this bit
  // need not be shifted.
  static Words RoundBf16(const Floats& x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __mmask16 odd =
        _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x00010000));
    const __m512i up = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    return Words(
        _mm512_mask_add_epi32(up, odd, bits, _mm512_set1_epi32(0x8000)));
  }
};

}  // namespace
}  // namespace posenc::simd
