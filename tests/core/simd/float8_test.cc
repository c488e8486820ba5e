// Conversions between FP8 and float32 by each kernel: every code, ml_dtypes'
// results for all 16-bit numbers, and the neighbourhood of every rounding
// boundary; and rotations of every pair of codes, with NaN, infinity and
// overflow.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/simd/dispatch.h"
#include "gtest/gtest.h"
#include "tests/fixtures/core/kernels.h"
#include "tests/reference/float_formats.h"

namespace posenc::simd {
namespace {

using reference::Decode16;
using reference::Decode8;
using reference::Encode8;
using reference::Format8;
using reference::kNan8;

using Codes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

// One rounding: a format, and its result for overflow.
struct Rounding {
  const char* name;
  const Format8* format;
  bool finite;
  DtypeIndex dtype;
  // Hashes of ml_dtypes' codes for all float16 and bfloat16 numbers, and for
  // RandomFloats() (tests/reference/float8_codes.py).
  std::uint64_t float16, bfloat16, random;
};
constexpr Rounding kRoundings[] = {
    {"e4m3", &reference::kE4m3, false, kE4m3, 0x80b3b2f080175525,
     0xe990f48673483715, 0x1067f92c82953d11},
    {"e4m3_finite", &reference::kE4m3, true, kE4m3Finite, 0x55456763debf12a5,
     0xd8b2feb674a31125, 0xe46612250837da3},
    {"e5m2", &reference::kE5m2, false, kE5m2, 0x304feac115993fa5,
     0xa701dd201af279e5, 0x6aae78b86d5a7705},
    {"e5m2_finite", &reference::kE5m2, true, kE5m2Finite, 0xd102d7d39f29d5a5,
     0x22c10a2b6f34bb85, 0x9ba0a47fe7ce9253},
};

std::uint32_t Bits(float x) { return std::bit_cast<std::uint32_t>(x); }
float Float(std::uint32_t bits) { return std::bit_cast<float>(bits); }

class Float8Test
    : public reference::KernelTest<std::tuple<const char*, Rounding>> {
 protected:
  const Rounding& rounding() const { return std::get<1>(GetParam()); }
  const Format8& format() const { return *rounding().format; }

  Floats Widen(const Codes& src) const {
    Floats dst(src.size());
    kernels_->widen[rounding().dtype](src.data(), dst.data(), src.size());
    return dst;
  }
  Codes Narrow(const Floats& src) const {
    Codes dst(src.size());
    kernels_->narrow[rounding().dtype](src.data(), dst.data(), src.size());
    return dst;
  }
  void ExpectNarrowsRight(const Floats& floats) const {
    const Codes codes = Narrow(floats);
    for (std::size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(codes[i], Encode8(format(), floats[i], rounding().finite))
          << std::hexfloat << floats[i];
    }
  }

  // Rotates a pair by cosine c and sine s; returns both codes.
  std::pair<int, int> Rotated(std::uint8_t x, std::uint8_t y, float c,
                              float s) const {
    const std::uint8_t src[2] = {x, y};
    std::uint8_t dst[2] = {};
    const float table[2] = {c, s};
    RotateJob job = {};
    job.src = src;
    job.dst = dst;
    job.tokens = job.heads = job.pairs = 1;
    job.token_stride = job.head_stride = 2;
    job.table = table;
    job.table_sine_offset = 1;
    kernels_->rotate[rounding().dtype][kHalf][kHalf](job);
    return {dst[0], dst[1]};
  }
  std::uint8_t Code(double x) const { return Encode8(format(), x, true); }
};

Codes AllCodes() {
  Codes all(256);
  for (int i = 0; i < 256; ++i) all[i] = static_cast<std::uint8_t>(i);
  return all;
}

Floats All16BitNumbers(const reference::Format16& format) {
  Floats all(65536);
  for (int i = 0; i < 65536; ++i) {
    all[i] =
        static_cast<float>(Decode16(format, static_cast<std::uint16_t>(i)));
  }
  return all;
}

// The same numbers as random_floats() of float8_codes.py.
Floats RandomFloats(std::size_t n) {
  Floats floats(n);
  std::uint64_t state = 1;
  for (float& x : floats) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<std::uint32_t>(state >> 32);
    x = Float((bits & 0x807fffff) | ((100 + (bits >> 23) % 64) << 23));
  }
  return floats;
}

// FNV-1a of 64 bits.
std::uint64_t Fnv1a(const Codes& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

TEST_P(Float8Test, WidensEveryCodeExactly) {
  const Floats wide = Widen(AllCodes());
  for (int code = 0; code < 256; ++code) {
    const double expected = Decode8(format(), static_cast<std::uint8_t>(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide[code])) << code;
    } else {
      EXPECT_EQ(Bits(wide[code]), Bits(static_cast<float>(expected))) << code;
    }
  }
}

TEST_P(Float8Test, WidenedCodesNarrowToThemselves) {
  const Codes back = Narrow(Widen(AllCodes()));
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    const double value = Decode8(format(), code);
    if (std::isinf(value) && rounding().finite) {
      EXPECT_EQ(back[i], (i & 0x80) | format().largest);
    } else {
      EXPECT_EQ(back[i], std::isnan(value) ? kNan8 : code);
    }
  }
}

TEST_P(Float8Test, RoundsAsMlDtypesDoes) {
  EXPECT_EQ(Fnv1a(Narrow(All16BitNumbers(reference::kFloat16))),
            rounding().float16);
  EXPECT_EQ(Fnv1a(Narrow(All16BitNumbers(reference::kBfloat16))),
            rounding().bfloat16);
  EXPECT_EQ(Fnv1a(Narrow(RandomFloats(65536))), rounding().random);
}

TEST_P(Float8Test, HalfwayPointsGoToEvenAndTheirNeighboursToTheNearest) {
  Floats floats;
  // The last midpoint is between the largest number and the next one.
  for (int code = 0; code <= format().largest; ++code) {
    const double here = Magnitude8(format(), code);
    const double middle = (here + Magnitude8(format(), code + 1)) / 2;
    for (const double x : {here, middle}) {
      const auto center = static_cast<float>(x);
      for (const float f : {center, std::nextafterf(center, INFINITY),
                            std::nextafterf(center, -INFINITY)}) {
        floats.push_back(f);
        floats.push_back(-f);
      }
    }
  }
  ExpectNarrowsRight(floats);
}

TEST_P(Float8Test, NumbersOfAllMagnitudesRoundToNearest) {
  Floats floats = {0.0f, -0.0f, INFINITY, -INFINITY, 1e38f, -1e38f, 1e-38f};
  for (const std::uint32_t bits : {1u, 0x7fffffu, 0x800000u, 0x7f7fffffu}) {
    floats.push_back(Float(bits));
    floats.push_back(Float(bits | 0x80000000u));
  }
  std::uint64_t state = 7;
  for (int i = 0; i < 50000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float x = Float(static_cast<std::uint32_t>(state >> 32));
    if (!std::isnan(x)) floats.push_back(x);
  }
  for (const float x : RandomFloats(50000)) floats.push_back(x);
  ExpectNarrowsRight(floats);
}

TEST_P(Float8Test, EveryNanIsOneCode) {
  Floats nans;
  for (std::uint32_t payload = 1; payload < 0x800000; payload += 4099) {
    nans.push_back(Float(0x7f800000u | payload));
    nans.push_back(Float(0xff800000u | payload));
  }
  for (const std::uint8_t code : Narrow(nans)) ASSERT_EQ(code, kNan8);
}

TEST_P(Float8Test, EveryLengthAndMisalignmentStaysWithinItsBuffers) {
  for (std::size_t n = 0; n <= 67; ++n) {
    for (const std::size_t shift : {0, 1, 3}) {
      // One canary after the n elements: the kernels must not write to it.
      const std::unique_ptr<std::uint8_t[]> narrow(
          new std::uint8_t[shift + n + 1]);
      const std::unique_ptr<float[]> wide(new float[shift + n + 1]);
      for (std::size_t i = 0; i < n; ++i) {
        narrow[shift + i] = static_cast<std::uint8_t>(0x21 + i);
      }
      wide[shift + n] = -7;
      narrow[shift + n] = 0xab;
      kernels_->widen[rounding().dtype](narrow.get() + shift,
                                        wide.get() + shift, n);
      EXPECT_EQ(wide[shift + n], -7);
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_EQ(wide[shift + i], Decode8(format(), narrow[shift + i]));
        narrow[shift + i] = 0;
      }
      kernels_->narrow[rounding().dtype](wide.get() + shift,
                                         narrow.get() + shift, n);
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_EQ(narrow[shift + i], 0x21 + i);
      }
      EXPECT_EQ(narrow[shift + n], 0xab);
    }
  }
}

TEST_P(Float8Test, RotationsPastTheLargestNumberSaturateOrNot) {
  const std::uint8_t largest = static_cast<std::uint8_t>(format().largest);
  const int past = rounding().finite       ? largest
                   : format().has_infinity ? largest + 1
                                           : kNan8;
  const int past_negative = past == kNan8 ? kNan8 : past | 0x80;
  const float root = std::sqrt(0.5f);
  // (x, x) by 45 degrees: (0, sqrt(2) x).
  EXPECT_EQ(Rotated(largest, largest, root, root), std::pair(0, past));
  EXPECT_EQ(Rotated(largest | 0x80, largest | 0x80, root, root),
            std::pair(0, past_negative));
  // A factor whose product overflows float32.
  EXPECT_EQ(Rotated(largest, 0, 3e38f, -3e38f), std::pair(past, past_negative));
  EXPECT_EQ(Rotated(largest, largest, 1, 0),
            std::pair(int{largest}, int{largest}));
}

TEST_P(Float8Test, InfinitiesAndNansFollowTheFormula) {
  const std::uint8_t one = Code(1);
  // NaN in either channel, of either sign, makes both NaN.
  for (const int nan : {0x7f, 0xff}) {
    const auto code = static_cast<std::uint8_t>(nan);
    EXPECT_EQ(Rotated(code, one, 1, 0), std::pair(0x7f, 0x7f));
    EXPECT_EQ(Rotated(one, code, 0.5f, 0.5f), std::pair(0x7f, 0x7f));
  }
  if (!format().has_infinity) return;
  const int past = rounding().finite ? 0x7b : 0x7c;
  EXPECT_EQ(Rotated(0x7c, one, 0.5f, 0.5f), std::pair(past, past));
  EXPECT_EQ(Rotated(0xfc, one, 0.5f, 0.5f),
            std::pair(past | 0x80, past | 0x80));
  // Infinity times 0, and infinity minus infinity, have no value.
  EXPECT_EQ(Rotated(0x7c, one, 1, 0), std::pair(past, 0x7f));
  EXPECT_EQ(Rotated(0x7c, 0x7c, 0.5f, 0.5f), std::pair(0x7f, past));
}

TEST_P(Float8Test, ZerosKeepTheirSignsAndSubnormalsTheirValues) {
  // x = -0, y = 0 by 0 degrees: -0 * 1 - 0 * 0 is -0.
  EXPECT_EQ(Rotated(0x80, 0, 1, 0), std::pair(0x80, 0));
  for (int code = 1; code < 1 << format().mantissa_bits; ++code) {
    EXPECT_EQ(Rotated(static_cast<std::uint8_t>(code), 0, 1, 0).first, code);
    EXPECT_EQ(Rotated(static_cast<std::uint8_t>(code | 0x80), 0, 1, 0).first,
              code | 0x80);
  }
  // Half the smallest number is a tie, which rounds to zero and keeps its sign;
  // one and a half rounds to two.
  EXPECT_EQ(Rotated(0x81, 0, 0.5f, 0).first, 0x80);
  EXPECT_EQ(Rotated(0x01, 0, 1.5f, 0).first, 0x02);
}

// A row's cosine and sine of one pair.
using Turn = std::pair<float, float>;
using CodePair = std::pair<std::uint8_t, std::uint8_t>;

// Rotations of whole slices by all kernels against the formula: products and
// sums are rounded to float32, and results to FP8.
class Float8RotationTest : public testing::TestWithParam<Rounding> {
 protected:
  const Format8& format() const { return *GetParam().format; }

  // Rotates slices of `width` pairs. Pair i of each slice rotates by turn
  // number i + shift, counted modulo the number of turns.
  void ExpectFormula(const std::vector<CodePair>& pairs,
                     const std::vector<Turn>& turns, std::size_t width,
                     std::size_t shift) {
    const std::size_t slices = (pairs.size() + width - 1) / width;
    Floats table(2 * width);
    std::vector<const std::vector<CodePair>*> results(width);
    for (std::size_t i = 0; i < width; ++i) {
      const Turn& turn = turns[(i + shift) % turns.size()];
      std::tie(table[i], table[width + i]) = turn;
      results[i] = &Results(turn);
    }
    for (const PairingIndex pairing : {kHalf, kInterleaved}) {
      Codes src(slices * 2 * width), expected(src.size());
      const std::size_t step = pairing == kHalf ? 1 : 2;
      const std::size_t second = pairing == kHalf ? width : 1;
      for (std::size_t k = 0; k < slices * width; ++k) {
        const std::size_t i = k % width;
        const std::size_t at = k / width * 2 * width + i * step;
        // The rest of the last slice has the first pairs again.
        const auto [x, y] = pairs[k % pairs.size()];
        src[at] = x;
        src[at + second] = y;
        std::tie(expected[at], expected[at + second]) =
            (*results[i])[x * 256 + y];
      }
      for (const KernelTable* kernels : SupportedKernels()) {
        Codes dst(src.size());
        RotateJob job = {};
        job.src = src.data();
        job.dst = dst.data();
        job.tokens = 1;
        job.heads = slices;
        job.pairs = width;
        job.head_stride = static_cast<std::ptrdiff_t>(2 * width);
        job.table = table.data();
        job.table_sine_offset = static_cast<std::ptrdiff_t>(width);
        kernels->rotate[GetParam().dtype][pairing][pairing](job);
        if (dst == expected) continue;
        for (std::size_t i = 0; i < dst.size(); ++i) {
          ASSERT_EQ(dst[i], expected[i])
              << kernels->name << " pairing " << pairing << " width " << width
              << " element " << i << " of code " << int{src[i]};
        }
      }
    }
  }

 private:
  // The results of a turn for all pairs of codes.
  const std::vector<CodePair>& Results(const Turn& turn) {
    std::vector<CodePair>& results = results_[turn];
    const auto encode = [this](float x) {
      return Encode8(format(), x, GetParam().finite);
    };
    for (int k = static_cast<int>(results.size()); k < 65536; ++k) {
      const auto [c, s] = turn;
      const auto x = static_cast<float>(
          Decode8(format(), static_cast<std::uint8_t>(k / 256)));
      const auto y = static_cast<float>(
          Decode8(format(), static_cast<std::uint8_t>(k % 256)));
      const float xc = x * c, ys = y * s, xs = x * s, yc = y * c;
      results.emplace_back(encode(xc - ys), encode(xs + yc));
    }
    return results;
  }

  // The map does not distinguish -0 and 0, so no turn has -0.
  std::map<Turn, std::vector<CodePair>> results_;
};

std::vector<CodePair> AllPairs(const Codes& codes) {
  std::vector<CodePair> pairs;
  for (const std::uint8_t x : codes) {
    for (const std::uint8_t y : codes) pairs.emplace_back(x, y);
  }
  return pairs;
}

// No result of finite numbers overflows: |cos| + |sin| <= 1. Some results are
// halfway between two codes, some are next to halfway, and some are subnormal.
const std::vector<Turn>& CalmTurns() {
  static const auto& turns = *new std::vector<Turn>{
      {1, 0},
      {0.5f, 0},
      {std::nextafterf(0.5f, 1), 0},
      {std::nextafterf(0.5f, 0), 0},
      {0.75f, -0.25f},
      {0, -1},
      {0.6f, 0.35f},
      {0x1p-7f, 0x1.8p-8f},
      {-0.3f, 1e-6f},
  };
  return turns;
}

constexpr std::size_t kWidths[] = {8, 16, 32, 33, 40, 64, 94, 128, 130};

TEST_P(Float8RotationTest, EveryPairOfFiniteNumbersFollowsTheFormula) {
  Codes finite;
  for (const std::uint8_t code : AllCodes()) {
    if ((code & 0x7f) <= format().largest) finite.push_back(code);
  }
  const std::vector<CodePair> pairs = AllPairs(finite);
  for (const std::size_t width : kWidths) {
    ExpectFormula(pairs, CalmTurns(), width, 0);
  }
  for (std::size_t shift = 1; shift < CalmTurns().size(); ++shift) {
    ExpectFormula(pairs, CalmTurns(), 64, shift);
  }
}

TEST_P(Float8RotationTest, EveryPairOfCodesFollowsTheFormulaForAnyFactor) {
  const std::vector<CodePair> pairs = AllPairs(AllCodes());
  const float root = std::sqrt(0.5f);
  // If products of E4M3 were computed at 2^-8 of their size, tiny factors would
  // lose bits, and huge factors would not overflow.
  for (const Turn& turn :
       std::initializer_list<Turn>{{1, 0},
                                   {root, root},
                                   {1.25f, -0.5f},
                                   {0, 0},
                                   {0x1p-149f, 0x1p-149f},
                                   {0x1.000002p-120f, 0x1.000004p-120f},
                                   {0x1.8p-141f, 0x1.4p-141f},
                                   {1e-30f, -1e-30f},
                                   {0x1p100f, 0x1p100f},
                                   {0x1p120f, 0x1p120f},
                                   {3e38f, -3e38f}}) {
    for (const std::size_t width : {16, 40, 64}) {
      ExpectFormula(pairs, {turn}, width, 0);
    }
  }
}

TEST_P(Float8RotationTest, OneSpecialNumberAtAnyPlaceLeavesAllOthersRight) {
  const auto largest = static_cast<std::uint8_t>(format().largest);
  for (const std::size_t width : {32, 40, 64, 128}) {
    // The second of three slices has one special code. All other codes are
    // numbers of magnitudes below 2.
    std::vector<CodePair> pairs(3 * width);
    for (std::size_t k = 0; k < pairs.size(); ++k) {
      pairs[k] = {static_cast<std::uint8_t>(k * 37 & 0xbf),
                  static_cast<std::uint8_t>(k * 101 & 0xbf)};
    }
    for (std::size_t place = width; place < 2 * width; ++place) {
      for (const int special : {0x7f, 0xff, 0x7c, int{largest}}) {
        const auto code = static_cast<std::uint8_t>(special);
        const CodePair before = pairs[place];
        (place % 2 == 0 ? pairs[place].first : pairs[place].second) = code;
        // The largest number overflows if it is multiplied by 1.25.
        ExpectFormula(pairs, {{1.25f, 0.1f}}, width, 0);
        pairs[place] = before;
      }
    }
  }
}

std::string TestName(
    const testing::TestParamInfo<Float8Test::ParamType>& info) {
  return std::string(std::get<0>(info.param)) + "_" +
         std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(
    InstructionSets, Float8Test,
    testing::Combine(testing::ValuesIn(reference::kInstructionSets),
                     testing::ValuesIn(kRoundings)),
    TestName);
INSTANTIATE_TEST_SUITE_P(Roundings, Float8RotationTest,
                         testing::ValuesIn(kRoundings), [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace posenc::simd
