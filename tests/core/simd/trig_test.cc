// Cosines and sines of each kernel against sinq and cosq of position *
// frequency, a product that is exact in __float128.

#include <quadmath.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/angle/quarter_turns.h"
#include "core/simd/dispatch.h"
#include "gtest/gtest.h"
#include "tests/fixtures/core/kernels.h"

namespace posenc::simd {
namespace {

// Owns the arrays of a TrigRow.
struct Row {
  std::size_t axes = 1;
  std::size_t n = 0;
  std::vector<double> frequencies;  // [axes][n]
  std::vector<double> positions;    // [axes] or [axes][n]
  std::vector<double> factor = {1};
  bool position_per_pair = false;
  bool negate = false;
  std::vector<double> hi, mid, lo;

  TrigRow View() {
    hi.clear(), mid.clear(), lo.clear();
    for (const double frequency : frequencies) {
      const core::QuarterTurns turns = core::SplitQuarterTurns(frequency);
      hi.push_back(turns.hi);
      mid.push_back(turns.mid);
      lo.push_back(turns.lo);
    }
    TrigRow view = {};
    view.position = positions.data();
    view.position_axis_stride = position_per_pair ? n : 1;
    view.position_pair_stride = position_per_pair ? 1 : 0;
    view.turns_hi = hi.data();
    view.turns_mid = mid.data();
    view.turns_lo = lo.data();
    view.axes = axes;
    view.n = n;
    view.factor = factor.data();
    view.factor_stride = factor.size() == 1 ? 0 : 1;
    view.negate = negate;
    return view;
  }

  __float128 Angle(std::size_t pair) const {
    __float128 angle = 0;
    for (std::size_t a = 0; a < axes; ++a) {
      const double position =
          position_per_pair ? positions[a * n + pair] : positions[a];
      angle += static_cast<__float128>(position) * frequencies[a * n + pair];
    }
    return negate ? -angle : angle;
  }
  __float128 Amplitude(std::size_t pair) const {
    return factor.size() == 1 ? factor[0] : factor[pair];
  }
};

template <class T>
struct Values {
  std::vector<T> cosines, sines;
  explicit Values(std::size_t n) : cosines(n), sines(n) {}
};

Values<float> Floats(const KernelTable& kernels, Row& row) {
  Values<float> values(row.n);
  kernels.trig_row_f32(row.View(), values.cosines.data(), values.sines.data());
  return values;
}
Values<double> Doubles(const KernelTable& kernels, Row& row) {
  Values<double> values(row.n);
  kernels.trig_row_f64(row.View(), values.cosines.data(), values.sines.data());
  return values;
}

// Returns |value - exact| in units of the last place of exact's float64.
double UlpError(double value, __float128 exact) {
  const int exponent =
      std::max(std::ilogb(static_cast<double>(exact)), -1022) - 52;
  return static_cast<double>(
      ldexpq(fabsq(static_cast<__float128>(value) - exact), -exponent));
}

template <class T>
bool SameBytes(const Values<T>& a, const Values<T>& b) {
  const std::size_t bytes = a.cosines.size() * sizeof(T);
  return std::memcmp(a.cosines.data(), b.cosines.data(), bytes) == 0 &&
         std::memcmp(a.sines.data(), b.sines.data(), bytes) == 0;
}

// A mix of the positions in requests: integers up to 2^26 of both signs, and
// fractions of 53 bits; frequencies of common models and random ones.
class RandomRows {
 public:
  explicit RandomRows(unsigned seed) : random_(seed) {}

  double Position(bool integer) {
    const double sign = random_() % 4 == 0 ? -1 : 1;
    // 2^-10 .. 2^26, log-uniform.
    const double magnitude = std::exp2(Unit() * 36 - 10);
    return sign * (integer ? std::floor(magnitude) : magnitude);
  }
  double Frequency() {
    if (random_() % 2 == 0) return std::exp2(-Unit() * 30);
    static constexpr double kThetas[] = {1e4, 5e5, 1e6};
    const double width = static_cast<double>(std::size_t{32} << random_() % 4);
    return std::pow(kThetas[random_() % 3],
                    -2 * std::floor(Unit() * width / 2) / width);
  }
  Row Make(std::size_t n, std::size_t axes, bool per_pair, bool integer) {
    Row row;
    row.n = n;
    row.axes = axes;
    row.position_per_pair = per_pair;
    for (std::size_t i = 0; i < axes * n; ++i) {
      row.frequencies.push_back(Frequency());
    }
    for (std::size_t i = 0; i < (per_pair ? axes * n : axes); ++i) {
      row.positions.push_back(Position(integer));
    }
    return row;
  }

 private:
  double Unit() {
    return std::ldexp(static_cast<double>(random_() >> 11), -53);
  }
  std::mt19937_64 random_;
};

class TrigTest : public reference::KernelTest<> {};

// Only the baseline is compared with the oracle, because the oracle is slow. A
// test below checks that the other sets give the bytes of the baseline on the
// same points.
TEST(TrigOracleTest, AMillionFloatsAreCorrectlyRounded) {
  const KernelTable& kernels = *SupportedKernels().front();
  RandomRows rows(1);
  int misrounded = 0;
  for (int i = 0; i < 1000000; i += 250) {
    Row row = rows.Make(250, 1, true, i % 4000 != 0);
    const Values<float> values = Floats(kernels, row);
    for (std::size_t pair = 0; pair < row.n; ++pair) {
      __float128 sine, cosine;
      sincosq(row.Angle(pair), &sine, &cosine);
      misrounded += values.sines[pair] != static_cast<float>(sine);
      misrounded += values.cosines[pair] != static_cast<float>(cosine);
    }
  }
  EXPECT_EQ(misrounded, 0);
}

TEST(TrigOracleTest, DoublesAreWithinTwoUlp) {
  const KernelTable& kernels = *SupportedKernels().front();
  RandomRows rows(2);
  double worst = 0;
  for (int i = 0; i < 100000; i += 250) {
    Row row = rows.Make(250, 1, true, i % 500 == 0);
    const Values<double> values = Doubles(kernels, row);
    for (std::size_t pair = 0; pair < row.n; ++pair) {
      __float128 sine, cosine;
      sincosq(row.Angle(pair), &sine, &cosine);
      worst = std::max({worst, UlpError(values.sines[pair], sine),
                        UlpError(values.cosines[pair], cosine)});
    }
  }
  EXPECT_LE(worst, 2);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST_P(TrigTest, GivesTheBytesOfTheBaseline) {
  const KernelTable& baseline = *SupportedKernels().front();
  if (kernels_ == &baseline) GTEST_SKIP() << "this is the baseline";
  RandomRows rows(1);
  for (int i = 0; i < 1000000; i += 250) {
    Row row = rows.Make(250, 1, true, i % 4000 != 0);
    ASSERT_TRUE(SameBytes(Floats(*kernels_, row), Floats(baseline, row))) << i;
    ASSERT_TRUE(SameBytes(Doubles(*kernels_, row), Doubles(baseline, row)))
        << i;
  }
}

// Every combination of the row's options, with every length of tail.
TEST_P(TrigTest, EveryShapeIsCorrectlyRounded) {
  const KernelTable& baseline = *SupportedKernels().front();
  RandomRows rows(3);
  for (std::size_t n = 1; n <= 40; ++n) {
    for (const std::size_t axes : {1, 3}) {
      for (int options = 0; options < 16; ++options) {
        const bool per_pair = (options & 1) != 0;
        const bool integer = (options & 2) != 0;
        Row row = rows.Make(n, axes, per_pair, integer);
        row.negate = (options & 4) != 0;
        if ((options & 8) != 0) {
          row.factor.clear();
          for (std::size_t i = 0; i < n; ++i) {
            row.factor.push_back(0.5 + 0.1 * static_cast<double>(i));
          }
        } else {
          row.factor = {1.1386294361119891};
        }
        const Values<float> floats = Floats(*kernels_, row);
        const Values<double> doubles = Doubles(*kernels_, row);
        for (std::size_t i = 0; i < n; ++i) {
          __float128 sine, cosine;
          sincosq(row.Angle(i), &sine, &cosine);
          sine *= row.Amplitude(i);
          cosine *= row.Amplitude(i);
          ASSERT_EQ(floats.sines[i], static_cast<float>(sine));
          ASSERT_EQ(floats.cosines[i], static_cast<float>(cosine));
          ASSERT_LE(UlpError(doubles.sines[i], sine), 2);
          ASSERT_LE(UlpError(doubles.cosines[i], cosine), 2);
        }
        ASSERT_TRUE(SameBytes(floats, Floats(baseline, row)));
        ASSERT_TRUE(SameBytes(doubles, Doubles(baseline, row)));
      }
    }
  }
}

// FLOAT32 angles are passed as positions with frequency 1.
TEST_P(TrigTest, AnglesThemselvesMayBePositions) {
  std::mt19937 random(4);
  Row row;
  row.position_per_pair = true;
  // Every binade from the smallest subnormal float to 2^51 quarter turns.
  for (int exponent = -149; exponent <= 51; ++exponent) {
    for (int i = 0; i < 40; ++i) {
      const float mantissa = 1 + std::ldexp(random() >> 9, -23);
      const float angle = std::ldexp(i == 0 ? 1 : mantissa, exponent);
      row.positions.push_back(i % 2 == 0 ? angle : -angle);
    }
  }
  row.n = row.positions.size();
  row.frequencies.assign(row.n, 1);
  const Values<float> floats = Floats(*kernels_, row);
  for (std::size_t i = 0; i < row.n; ++i) {
    __float128 sine, cosine;
    sincosq(row.Angle(i), &sine, &cosine);
    ASSERT_EQ(floats.sines[i], static_cast<float>(sine)) << row.positions[i];
    ASSERT_EQ(floats.cosines[i], static_cast<float>(cosine))
        << row.positions[i];
  }
}

TEST_P(TrigTest, PositionZeroDoesNotTurn) {
  for (const double position : {0.0, -0.0}) {
    Row row;
    row.n = 3;
    row.positions = {position};
    row.frequencies = {1, 0.1, 0};
    const Values<float> floats = Floats(*kernels_, row);
    const Values<double> doubles = Doubles(*kernels_, row);
    for (std::size_t i = 0; i < row.n; ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(floats.sines[i]), 0u);
      EXPECT_EQ(floats.cosines[i], 1);
      EXPECT_EQ(doubles.sines[i], 0);
      EXPECT_EQ(doubles.cosines[i], 1);
    }
  }
}

TEST_P(TrigTest, NegationChangesTheSineOnly) {
  RandomRows rows(5);
  Row row = rows.Make(37, 3, true, true);
  const Values<double> forward = Doubles(*kernels_, row);
  row.negate = true;
  const Values<double> inverse = Doubles(*kernels_, row);
  for (std::size_t i = 0; i < row.n; ++i) {
    EXPECT_EQ(inverse.sines[i], -forward.sines[i]);
    EXPECT_EQ(inverse.cosines[i], forward.cosines[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, TrigTest,
                         testing::ValuesIn(reference::kInstructionSets),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace posenc::simd
