// SSE2, the baseline that every x86-64 CPU has.

#include <emmintrin.h>

#include <cstdint>
#include <cstring>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernel_tables.h"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_float8.inl"

namespace posenc::simd {
namespace {

struct Isa : Batches<xsimd::sse2> {
  static constexpr int kRegisters = 16;
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
  // Returns the lower 32 bits of each double, in any order.
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

  using F16Codes = Codes<Arch, F16Format, false>;
  static Floats LoadF16(const std::uint16_t* src) {
    return F16Codes::Widened(_mm_unpacklo_epi16(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(src)),
        _mm_setzero_si128()));
  }
  static void StoreF16(const Floats& x, std::uint16_t* dst) {
    StoreHigh16(F16Codes::Narrowed(x) << 16, dst);
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
