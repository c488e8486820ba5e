// The pieces of a split frequency: their sum, and their numbers of bits, which
// make products with positions exact.

#include "core/angle/quarter_turns.h"

#include <quadmath.h>

#include <cmath>
#include <cstdint>
#include <random>

#include "gtest/gtest.h"

namespace posenc::core {
namespace {

// Significant bits of x.
int SignificantBits(double x) {
  int exponent;
  const auto digits =
      static_cast<std::int64_t>(std::ldexp(std::frexp(x, &exponent), 53));
  if (digits == 0) return 0;
  return 53 - __builtin_ctzll(static_cast<std::uint64_t>(std::abs(digits)));
}

double RandomFrequency(std::mt19937_64& random) {
  return std::ldexp(1 + std::ldexp(static_cast<double>(random() >> 12), -52),
                    static_cast<int>(random() % 120) - 100);
}

TEST(SplitTurnsTest, PiecesAddUpToTwoOverPi) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const double sign = i % 2 == 0 ? 1 : -1;
    const double w =
        i < 64 ? std::pow(10000.0, -i / 64.0) : sign * RandomFrequency(random);
    const QuarterTurns turns = SplitQuarterTurns(w);
    // asin(1) = pi / 2; the four roundings are 2^-110 at most.
    const __float128 exact = w / asinq(1);
    const __float128 sum = static_cast<__float128>(turns.hi) +
                           static_cast<__float128>(turns.mid) +
                           static_cast<__float128>(turns.lo);
    ASSERT_LE(static_cast<double>(fabsq((sum - exact) / exact)), 0x1p-94)
        << std::hexfloat << w;
  }
}

TEST(SplitTurnsTest, UpperPiecesHave21Bits) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100000; ++i) {
    const QuarterTurns turns = SplitQuarterTurns(RandomFrequency(random));
    ASSERT_LE(SignificantBits(turns.hi), 21);
    ASSERT_LE(SignificantBits(turns.mid), 21);
  }
}

TEST(SplitTurnsTest, ZeroTurnsNowhere) {
  const QuarterTurns turns = SplitQuarterTurns(0);
  EXPECT_EQ(turns.hi, 0);
  EXPECT_EQ(turns.mid, 0);
  EXPECT_EQ(turns.lo, 0);
}

TEST(CutQuarterTurnsTest, PiecesAddUpExactly) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100000; ++i) {
    const double turns = (i % 2 == 0 ? 1 : -1) * RandomFrequency(random);
    const QuarterTurns pieces = CutQuarterTurns(turns);
    ASSERT_LE(SignificantBits(pieces.hi), 21);
    ASSERT_LE(SignificantBits(pieces.mid), 21);
    const __float128 sum = static_cast<__float128>(pieces.hi) +
                           static_cast<__float128>(pieces.mid) +
                           static_cast<__float128>(pieces.lo);
    ASSERT_EQ(static_cast<double>(sum - static_cast<__float128>(turns)), 0);
  }
}

}  // namespace
}  // namespace posenc::core
