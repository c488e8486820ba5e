// Advanced SIMD, which every AArch64 CPU has. `./run neon` compares the results
// with those of the other instruction sets, under an emulator. The speed was
// never measured.

#include <arm_neon.h>

#include <cstdint>
#include <cstring>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernel_tables.h"
#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

struct Isa : Batches<xsimd::neon64> {
  static constexpr int kRegisters = 32;
  static constexpr bool kConvertsBf16 = false;
  using Bf16Rounding = RoundingHalfUp<Isa>;

  static Floats SwapPairs(const Floats& x) { return vrev64q_f32(x); }
  static Doubles SwapPairs(const Doubles& x) { return vextq_f64(x, x, 1); }

  static Floats NarrowDoubles(const Doubles& low, const Doubles& high) {
    return vcvt_high_f32_f64(vcvt_f32_f64(low), high);
  }
  // Returns the lower 32 bits of each double, in any order.
  static Ints LowWords(const Doubles& low, const Doubles& high) {
    return vuzp1q_s32(vreinterpretq_s32_f64(low), vreinterpretq_s32_f64(high));
  }

  // There are no intrinsics for non-temporal stores, so these functions use
  // plain stores.
  static void Stream(const Floats& x, float* dst) { vst1q_f32(dst, x); }
  static void Stream(const Doubles& x, double* dst) { vst1q_f64(dst, x); }
  static void StreamLine(const void* src, void* dst) {
    std::memcpy(dst, src, 64);
  }
  static void EndStreams() {}

  static Floats LoadF16(const std::uint16_t* src) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(src)));
  }
  static void StoreF16(const Floats& x, std::uint16_t* dst) {
    vst1_u16(dst, vreinterpret_u16_f16(vcvt_f16_f32(x)));
  }
  template <int>
  static uint16x8_t TwoF16(const Floats& x, const Floats& y) {
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x), y));
  }

  static Floats LoadBf16(const std::uint16_t* src) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(src), 16));
  }

  static void StoreHigh16(const Words& words, std::uint16_t* dst) {
    vst1_u16(dst, vshrn_n_u32(words, 16));
  }
  static uint16x8_t UpperHalves(const Words& x, const Words& y) {
    return vcombine_u16(vshrn_n_u32(x, 16), vshrn_n_u32(y, 16));
  }
  static uint16x8_t UpperPairs(const Words& x, const Words& y) {
    return vreinterpretq_u16_u32((x >> 16) | (y & Words(0xffff0000u)));
  }
  template <bool kStream>
  static void StoreWords(uint16x8_t x, std::uint16_t* dst) {
    vst1q_u16(dst, x);
  }

  static Words LoadBytes(const std::uint8_t* src) {
    std::uint32_t bytes;
    std::memcpy(&bytes, src, sizeof(bytes));
    const uint8x8_t both = vreinterpret_u8_u32(vdup_n_u32(bytes));
    return vmovl_u16(vget_low_u16(vmovl_u8(both)));
  }
  static void StoreBytes(const Words& x, std::uint8_t* dst) {
    const uint16x4_t words = vmovn_u32(x);
    const std::uint32_t bytes = vget_lane_u32(
        vreinterpret_u32_u8(vmovn_u16(vcombine_u16(words, words))), 0);
    std::memcpy(dst, &bytes, sizeof(bytes));
  }
};

}  // namespace
}  // namespace posenc::simd

#include "core/simd/kernels.inl"

namespace posenc::simd {

constinit const KernelTable kNeonKernels = MakeKernels<Isa>("neon");

}  // namespace posenc::simd
