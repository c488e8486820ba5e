// Conversions between 16-bit numbers and float32 by each kernel: every 16-bit
// number, and the neighbourhood of every rounding boundary.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/simd/dispatch.h"
#include "gtest/gtest.h"
#include "tests/fixtures/core/kernels.h"
#include "tests/reference/float_formats.h"

namespace posenc::simd {
namespace {

using reference::Decode16;
using reference::Encode16;
using reference::Format16;
using reference::kBfloat16;
using reference::kFloat16;

std::uint32_t Bits(float x) { return std::bit_cast<std::uint32_t>(x); }
float Float(std::uint32_t bits) { return std::bit_cast<float>(bits); }

DtypeIndex IndexOf(const Format16& format) {
  return format.mantissa_bits == 10 ? kF16 : kBf16;
}

class ConvertTest : public reference::KernelTest<> {
 protected:
  std::vector<float> Widen(const Format16& format,
                           const std::vector<std::uint16_t>& src) const {
    std::vector<float> dst(src.size());
    kernels_->widen[IndexOf(format)](src.data(), dst.data(), src.size());
    return dst;
  }
  std::vector<std::uint16_t> Narrow(const Format16& format,
                                    const std::vector<float>& src) const {
    std::vector<std::uint16_t> dst(src.size());
    kernels_->narrow[IndexOf(format)](src.data(), dst.data(), src.size());
    return dst;
  }
};

std::vector<std::uint16_t> All16BitNumbers() {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::uint16_t>(i);
  }
  return all;
}

// Random bit patterns (all magnitudes), and the neighbourhood of every rounding
// boundary: 16-bit numbers, the midpoints between them, and the floats next to
// both.
std::vector<float> FloatsToNarrow(const Format16& format) {
  std::vector<float> floats = {
      0.0f,     -0.0f,    INFINITY, -INFINITY, 65504.0f,   65519.9f,  65520.0f,
      65536.0f, 0x1p-24f, 0x1p-25f, 0x1p-14f,  0x1.8p-25f, 3.3895e38f};
  for (const std::uint32_t bits : {1u, 2u, 0x7fffu, 0x8000u, 0x8001u, 0x18000u,
                                   0x7fffffu, 0x800000u, 0x7f7fffffu}) {
    floats.push_back(Float(bits));
    floats.push_back(Float(bits | 0x80000000u));
  }
  const auto all = All16BitNumbers();
  for (const std::uint16_t bits : all) {
    const double here = Decode16(format, bits);
    const double next = Decode16(format, static_cast<std::uint16_t>(bits + 1));
    if (std::isnan(here) || !std::isfinite(next)) continue;
    for (const double x : {here, (here + next) / 2}) {
      const float center = static_cast<float>(x);
      floats.push_back(center);
      floats.push_back(std::nextafterf(center, INFINITY));
      floats.push_back(std::nextafterf(center, -INFINITY));
    }
  }
  std::mt19937 random(1);
  while (floats.size() < 1000003) {
    const float x = Float(random());
    if (!std::isnan(x)) floats.push_back(x);
    // Magnitudes around those of float16.
    floats.push_back(std::ldexp(static_cast<float>(random()) - 0x1p31f,
                                static_cast<int>(random() % 48) - 31 - 28));
  }
  return floats;
}

void ExpectWidensExactly(const Format16& format,
                         const std::vector<std::uint16_t>& src,
                         const std::vector<float>& dst) {
  for (std::size_t i = 0; i < src.size(); ++i) {
    const double expected = Decode16(format, src[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(dst[i])) << src[i];
    } else {
      ASSERT_EQ(Bits(dst[i]), Bits(static_cast<float>(expected))) << src[i];
    }
  }
}

TEST_P(ConvertTest, WidensEveryNumberExactly) {
  const auto all = All16BitNumbers();
  ExpectWidensExactly(kFloat16, all, Widen(kFloat16, all));
  ExpectWidensExactly(kBfloat16, all, Widen(kBfloat16, all));
}

TEST_P(ConvertTest, WidenedNumbersNarrowToThemselves) {
  for (const Format16& format : {kFloat16, kBfloat16}) {
    const auto all = All16BitNumbers();
    const auto back = Narrow(format, Widen(format, all));
    for (const std::uint16_t bits : all) {
      if (std::isnan(Decode16(format, bits))) {
        // A NaN becomes quiet; its other bits are kept.
        const int quiet = 1 << (format.mantissa_bits - 1);
        ASSERT_EQ(back[bits], bits | quiet);
      } else {
        ASSERT_EQ(back[bits], bits);
      }
    }
  }
}

TEST_P(ConvertTest, NarrowsToNearestEven) {
  for (const Format16& format : {kFloat16, kBfloat16}) {
    const auto floats = FloatsToNarrow(format);
    const auto narrow = Narrow(format, floats);
    for (std::size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(narrow[i], Encode16(format, floats[i]))
          << std::hexfloat << floats[i] << " mantissa bits "
          << format.mantissa_bits;
    }
  }
}

TEST_P(ConvertTest, NarrowKeepsSignAndUpperPayloadOfNans) {
  std::mt19937 random(2);
  std::vector<float> nans;
  for (int i = 0; i < 1003; ++i) {
    const std::uint32_t bits = random() | 0x7f800000u;
    if ((bits & 0x7fffffu) != 0) nans.push_back(Float(bits));
  }
  nans.push_back(Float(0x7f800001u));  // its upper payload is 0
  nans.push_back(Float(0xff800001u));
  const auto f16 = Narrow(kFloat16, nans);
  const auto bf16 = Narrow(kBfloat16, nans);
  for (std::size_t i = 0; i < nans.size(); ++i) {
    const std::uint32_t bits = Bits(nans[i]);
    EXPECT_EQ(f16[i],
              ((bits >> 16) & 0x8000u) | 0x7e00u | ((bits >> 13) & 0x03ffu));
    EXPECT_EQ(bf16[i], (bits >> 16) | 0x0040u);
  }
}

// Vectors with a subnormal among other numbers take another path in some
// instruction sets.
TEST_P(ConvertTest, SubnormalsSurviveAmongNormals) {
  std::vector<float> floats;
  for (int i = 0; i < 256; ++i) {
    floats.push_back(i % 17 == 3 ? Float(0x00018000u + i) : 1.0f + i * 0.01f);
  }
  const auto narrow = Narrow(kBfloat16, floats);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    EXPECT_EQ(narrow[i], Encode16(kBfloat16, floats[i])) << i;
  }
}

TEST_P(ConvertTest, EveryLengthAndMisalignmentStaysWithinItsBuffers) {
  for (const Format16& format : {kFloat16, kBfloat16}) {
    for (std::size_t n = 0; n <= 67; ++n) {
      for (const std::size_t shift : {0, 1, 3}) {
        // One canary after the n elements: the kernels must not write to it.
        const std::unique_ptr<std::uint16_t[]> narrow(
            new std::uint16_t[shift + n + 1]);
        const std::unique_ptr<float[]> wide(new float[shift + n + 1]);
        for (std::size_t i = 0; i < n; ++i) {
          narrow[shift + i] = static_cast<std::uint16_t>(0x3c00 + 37 * i);
        }
        wide[shift + n] = -7;
        narrow[shift + n] = 0xabcd;
        kernels_->widen[IndexOf(format)](narrow.get() + shift,
                                         wide.get() + shift, n);
        EXPECT_EQ(wide[shift + n], -7);
        for (std::size_t i = 0; i < n; ++i) {
          EXPECT_EQ(wide[shift + i], Decode16(format, narrow[shift + i]));
          narrow[shift + i] = 0;
        }
        kernels_->narrow[IndexOf(format)](wide.get() + shift,
                                          narrow.get() + shift, n);
        for (std::size_t i = 0; i < n; ++i) {
          EXPECT_EQ(narrow[shift + i], 0x3c00 + 37 * i);
        }
        EXPECT_EQ(narrow[shift + n], 0xabcd);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, ConvertTest,
                         testing::ValuesIn(reference::kInstructionSets),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace posenc::simd
