// SSE2, the baseline that every x86-64 CPU has.

#include <emmintrin.h>

#include <cstdint>
#include <cstring>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernel_tables.h"
#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

struct Isa {
  using Arch = xsimd::sse2;
  using Floats = xsimd::batch<float, Arch>;
  using Doubles = xsimd::batch<double, Arch>;
  using Words = xsimd::batch<std::uint32_t, Arch>;
  using Ints = xsimd::batch<std::int32_t, Arch>;
  static constexpr int kRegisters = 16;
  static constexpr bool kBf16Planes = true;
  static constexpr bool kConvertsBf16 = false;

  static Floats SwapPairs(const Floats& x) {
    return _mm_shuffle_ps(x, x, _MM_SHUFFLE(2, 3, 0, 1));
  }
  static Doubles SwapPairs(const Doubles& x) {
    return _mm_shuffle_pd(x, x, 0b01);
  }

  static Floats NarrowDoubles(const Doubles& low, const Doubles& high) {
    return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
  }
  // Returns the lower words of doubles, in any order.
  static Ints LowWords(const Doubles& low, const Doubles& high) {
    return _mm_castps_si128(
        _mm_shuffle_ps(_mm_castpd_ps(low), _mm_castpd_ps(high), 0b10001000));
  }

  // Orders streamed stores before all later stores.
  static void EndStreams() { _mm_sfence(); }
  static void Stream(const Floats& x, float* dst) { _mm_stream_ps(dst, x); }
  static void Stream(const Doubles& x, double* dst) { _mm_stream_pd(dst, x); }
  static void StreamLine(const void* src, void* dst) {
    const auto* from = static_cast<const __m128i*>(src);
    auto* to = static_cast<__m128i*>(dst);
    for (int i = 0; i < 4; ++i)
      _mm_stream_si128(to + i, _mm_loadu_si128(from + i));
  }

  template <bool kStream>
  static void StoreWords(__m128i x, std::uint16_t* dst) {
    auto* const to = reinterpret_cast<__m128i*>(dst);
    if constexpr (kStream) {
      _mm_stream_si128(to, x);
    } else {
      _mm_storeu_si128(to, x);
    }
  }

  // Returns mask ? a : b.
  static __m128i Select(__m128i mask, __m128i a, __m128i b) {
    return _mm_or_si128(_mm_and_si128(mask, a), _mm_andnot_si128(mask, b));
  }

  // float16 has 5 exponent bits with bias 15, and 10 mantissa bits.
  static Floats LoadF16(const std::uint16_t* src) {
    const __m128i half = _mm_unpacklo_epi16(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(src)),
        _mm_setzero_si128());
    const __m128i sign =
        _mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x8000)), 16);
    const __m128i bits =
        _mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x7fff)), 13);
    const __m128i normal = _mm_add_epi32(bits, _mm_set1_epi32(112 << 23));
    // 2^-14 * (1 + m / 1024) - 2^-14 is the subnormal m * 2^-24 exactly.
    const __m128i smallest_normal = _mm_set1_epi32(113 << 23);
    const __m128i subnormal = _mm_castps_si128(
        _mm_sub_ps(_mm_castsi128_ps(_mm_add_epi32(bits, smallest_normal)),
                   _mm_castsi128_ps(smallest_normal)));
    const __m128i infinity = _mm_set1_epi32(0x7c00 << 13);
    const __m128i is_nan = _mm_cmpgt_epi32(bits, infinity);
    const __m128i special =
        _mm_or_si128(_mm_or_si128(bits, _mm_set1_epi32(0x7f800000)),
                     _mm_and_si128(is_nan, _mm_set1_epi32(0x00400000)));
    const __m128i is_subnormal =
        _mm_cmplt_epi32(bits, _mm_set1_epi32(0x0400 << 13));
    const __m128i is_special =
        _mm_or_si128(is_nan, _mm_cmpeq_epi32(bits, infinity));
    const __m128i magnitude =
        Select(is_special, special, Select(is_subnormal, subnormal, normal));
    return _mm_castsi128_ps(_mm_or_si128(magnitude, sign));
  }

  static void StoreF16(const Floats& x, std::uint16_t* dst) {
    const __m128i all = _mm_castps_si128(x);
    const __m128i sign =
        _mm_and_si128(all, _mm_set1_epi32(static_cast<int>(0x80000000u)));
    const __m128i bits = _mm_xor_si128(all, sign);
    // Changes the bias, then rounds to nearest even. A carry out of the largest
    // finite number gives infinity.
    const __m128i odd =
        _mm_and_si128(_mm_srli_epi32(bits, 13), _mm_set1_epi32(1));
    const __m128i normal = _mm_srli_epi32(
        _mm_add_epi32(_mm_sub_epi32(bits, _mm_set1_epi32((112 << 23) - 0xfff)),
                      odd),
        13);
    // In 1/2 + |x| the last bit has the value 2^-24, as in a subnormal float16.
    const __m128i half_one = _mm_set1_epi32(126 << 23);
    const __m128i subnormal =
        _mm_sub_epi32(_mm_castps_si128(_mm_add_ps(_mm_castsi128_ps(bits),
                                                  _mm_castsi128_ps(half_one))),
                      half_one);
    const __m128i infinity = _mm_set1_epi32(0x7f800000);
    const __m128i is_nan = _mm_cmpgt_epi32(bits, infinity);
    const __m128i payload =
        _mm_and_si128(_mm_srli_epi32(bits, 13), _mm_set1_epi32(0x03ff));
    const __m128i special = _mm_or_si128(
        _mm_set1_epi32(0x7c00),
        _mm_and_si128(is_nan, _mm_or_si128(payload, _mm_set1_epi32(0x0200))));
    const __m128i is_subnormal =
        _mm_cmplt_epi32(bits, _mm_set1_epi32(113 << 23));
    // Magnitudes of 2^16 or more become infinity or NaN.
    const __m128i is_special =
        _mm_cmpgt_epi32(bits, _mm_set1_epi32((143 << 23) - 1));
    const __m128i magnitude =
        Select(is_special, special, Select(is_subnormal, subnormal, normal));
    StoreHigh16(Words(_mm_or_si128(_mm_slli_epi32(magnitude, 16), sign)), dst);
  }

  template <int>
  static __m128i TwoF16(const Floats& x, const Floats& y) {
    std::uint16_t both[8];
    StoreF16(x, both);
    StoreF16(y, both + 4);
    return _mm_loadu_si128(reinterpret_cast<__m128i*>(both));
  }

  static Floats LoadBf16(const std::uint16_t* src) {
    return _mm_castsi128_ps(_mm_unpacklo_epi16(
        _mm_setzero_si128(),
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(src))));
  }

  static void StoreHigh16(const Words& words, std::uint16_t* dst) {
    // The words are sign-extended, so that the signed pack does not saturate.
    const __m128i low = _mm_srai_epi32(words, 16);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(dst),
                     _mm_packs_epi32(low, low));
  }

  static __m128i UpperHalves(const Words& x, const Words& y) {
    return _mm_packs_epi32(_mm_srai_epi32(x, 16), _mm_srai_epi32(y, 16));
  }
  static __m128i UpperPairs(const Words& x, const Words& y) {
    return (x >> 16) | (y & Words(0xffff0000u));
  }

  static Words LoadBytes(const std::uint8_t* src) {
    std::int32_t bytes;
    std::memcpy(&bytes, src, sizeof(bytes));
    const __m128i zero = _mm_setzero_si128();
    return _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), zero),
                              zero);
  }
  static void StoreBytes(const Words& x, std::uint8_t* dst) {
    const __m128i words = _mm_packs_epi32(x, x);
    const std::int32_t bytes =
        _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(dst, &bytes, sizeof(bytes));
  }
};

}  // namespace
}  // namespace posenc::simd

#include "core/simd/kernels.inl"

namespace posenc::simd {

constinit const KernelTable kSse2Kernels = MakeKernels<Isa>("sse2");

}  // namespace posenc::simd
