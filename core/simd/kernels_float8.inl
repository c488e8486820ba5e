// Loads FP8 into batches of float32, and stores batches as FP8. Part of
// kernels.inl.
//
//   E4M3     s eeee mmm  bias  7  largest 0x7e (448)    0x7f is NaN
//   E5M2     s eeeee mm  bias 15  largest 0x7b (57344)  0x7c infinity, then NaN
//   float16  s eeeee mmmmmmmmmm  bias 15
//
// float16 is here for SSE2, which has no instructions that convert float16.
// All conversions work on 32-bit words, and are the same code for all
// instruction sets. Instruction sets differ only in how they load bytes as
// words, and store words as bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

struct E4m3Format {
  static constexpr int kSign = 0x80;
  static constexpr int kMantissa = 3;
  static constexpr int kBias = 7;
  static constexpr int kLargest = 0x7e;
  static constexpr int kOverflow = 0x7f;
};
struct E5m2Format {
  static constexpr int kSign = 0x80;
  static constexpr int kMantissa = 2;
  static constexpr int kBias = 15;
  static constexpr int kLargest = 0x7b;
  static constexpr int kOverflow = 0x7c;
};
struct F16Format {
  static constexpr int kSign = 0x8000;
  static constexpr int kMantissa = 10;
  static constexpr int kBias = 15;
  static constexpr int kLargest = 0x7bff;
  static constexpr int kOverflow = 0x7c00;
};
constexpr int kNan8 = 0x7f;

// Conversions between float32 and the codes of a format, one code in each word.
// If kFinite is true, results that overflow become the largest finite number.
template <class Arch, class Format, bool kFinite>
class Codes {
 public:
  using Batch = xsimd::batch<float, Arch>;
  using Words = xsimd::batch<std::uint32_t, Arch>;

  static Batch Widened(const Words& code) {
    const Words sign = (code & Const(Format::kSign)) << kSignShift;
    const Words magnitude = (code & Const(Format::kSign - 1)) << kShift;
    const Words normal = magnitude + Const(kRebias);
    // 2^e (1 + m) - 2^e is exactly the subnormal number, where e is the
    // smallest exponent.
    const Batch smallest = Float(Const(kSmallestNormal));
    const Batch subnormal =
        Float(magnitude + Const(kSmallestNormal)) - smallest;
    // If rebiased codes are read as floats, they keep the order of the codes.
    const Batch place = Float(normal);
    const Batch finite = xsimd::select(place < smallest, subnormal, place);
    // Codes above the largest finite number get the exponent of infinity.
    // E4M3's NaN stays NaN, because it has fraction bits.
    const Words special = normal | Const(0x7f800000);
    const Batch largest =
        Float(Const((std::int64_t{Format::kLargest} << kShift) + kRebias));
    const Words bits = Select(place > largest, special, BitCast<Words>(finite));
    return Float(bits | sign);
  }

  static Words Narrowed(const Batch& x) {
    const Words all = BitCast<Words>(x);
    const Words sign = (all >> kSignShift) & Const(Format::kSign);
    const Words bits = all & Const(0x7fffffff);
    const Batch magnitude = Float(bits);
    // Rounds to nearest even by adding; a carry out of the mantissa increments
    // the exponent.
    const Words odd = (bits >> kShift) & Const(1);
    const Words normal =
        ((bits + Const((1 << (kShift - 1)) - 1) + odd) >> kShift) -
        Const(kRebias >> kShift);
    // kUnit is a power of two. In the sum of kUnit and |x|, the last bit has
    // the value of a subnormal's last bit.
    constexpr std::int32_t kUnit =
        kSmallestNormal + ((23 - Format::kMantissa) << 23);
    const Words subnormal =
        BitCast<Words>(magnitude + Float(Const(kUnit))) - Const(kUnit);
    const Words code =
        Select(magnitude < Float(Const(kSmallestNormal)), subnormal, normal) |
        sign;
    // The least magnitude that rounds to more than the largest finite number.
    // The number halfway to the next code rounds to the even code: this is the
    // next code in E5M2 and float16, but not in E4M3.
    constexpr std::int32_t kOverLargest = (Format::kLargest << kShift) +
                                          kRebias + (1 << (kShift - 1)) +
                                          (Format::kLargest % 2 == 0 ? 1 : 0);
    constexpr int kTop = kFinite ? Format::kLargest : Format::kOverflow;
    const Words top =
        kIs8Bit && kTop == kNan8 ? Const(kNan8) : Const(kTop) | sign;
    const Words bounded =
        Select(magnitude < Float(Const(kOverLargest)), code, top);
    return Select(xsimd::isnan(x), Nan(bits, sign), bounded);
  }

 private:
  static constexpr bool kIs8Bit = Format::kSign == 0x80;
  static constexpr int kSignShift = kIs8Bit ? 24 : 16;
  // A float has this many more mantissa bits than the format.
  static constexpr int kShift = 23 - Format::kMantissa;
  // The bits of the floats that correspond to the format's exponent fields 0
  // (kRebias) and 1 (kSmallestNormal, the format's smallest normal number).
  static constexpr std::int32_t kRebias = (127 - Format::kBias) << 23;
  static constexpr std::int32_t kSmallestNormal = kRebias + (1 << 23);

  static Words Const(std::int64_t bits) {
    return Words(static_cast<std::uint32_t>(bits));
  }
  static Batch Float(const Words& bits) { return BitCast<Batch>(bits); }
  // Returns mask ? a : b for words, with a mask of floats.
  static Words Select(const xsimd::batch_bool<float, Arch>& mask,
                      const Words& a, const Words& b) {
    return BitCast<Words>(xsimd::select(mask, Float(a), Float(b)));
  }
  // The code of a NaN. In float16 the NaN is quiet, and has the sign and the
  // upper payload of the float.
  static Words Nan(const Words& bits, const Words& sign) {
    if constexpr (kIs8Bit) return Const(kNan8);
    constexpr int kQuiet = 1 << (Format::kMantissa - 1);
    return ((bits >> kShift) & Const(Format::kSign - 1)) | Const(kQuiet) | sign;
  }
};

template <class IsaType, class FormatType, bool kFinite>
struct Float8 : PairsAsFloats<Float8<IsaType, FormatType, kFinite>> {
  using Isa = IsaType;
  using Format = FormatType;
  using Storage = std::uint8_t;
  using Real = float;
  using Batch = xsimd::batch<float, typename Isa::Arch>;
  using Words = xsimd::batch<std::uint32_t, typename Isa::Arch>;
  using Conversion = Codes<typename Isa::Arch, Format, kFinite>;
  static constexpr std::size_t kLanes = Batch::size;

  static Batch Load(const std::uint8_t* src) {
    return Conversion::Widened(Isa::LoadBytes(src));
  }
  static void Store(const Batch& x, std::uint8_t* dst) {
    Isa::StoreBytes(Conversion::Narrowed(x), dst);
  }
  // These conversions are so slow that non-temporal stores would save no time.
  template <bool>
  static void StoreTwo(const Batch& x, const Batch& y, std::uint8_t* dst) {
    Store(x, dst);
    Store(y, dst + kLanes);
  }
  static void Narrow(const Batch& x, std::uint8_t* dst) { Store(x, dst); }
};

template <class Dtype>
inline constexpr bool kIsFloat8 = sizeof(typename Dtype::Storage) == 1;

template <class Isa, bool kFinite>
using E4m3 = Float8<Isa, E4m3Format, kFinite>;
template <class Isa, bool kFinite>
using E5m2 = Float8<Isa, E5m2Format, kFinite>;

}  // namespace
}  // namespace posenc::simd
