// Float32 cosines and sines whose exact values are close to halfway between two
// floats, against libquadmath.

#include "core/angle/exact_rounding.h"

#include <quadmath.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/angle/cos_sin_row.h"
#include "core/angle/quarter_turns.h"
#include "gtest/gtest.h"
#include "tests/fixtures/core/instruction_sets.h"

namespace posenc::core {
namespace {

// A row of several pairs with one position on each axis.
struct Row {
  explicit Row(std::vector<double> position_of_axis)
      : positions(std::move(position_of_axis)) {}

  // [axes][pairs]
  void SetFrequencies(const std::vector<double>& w) {
    frequencies = w;
    turns = {};
    for (const double frequency : w) {
      turns.Append(SplitQuarterTurns(frequency));
    }
  }
  simd::TrigRow View() const {
    simd::TrigRow row = {};
    row.position = positions.data();
    row.position_axis_stride = 1;
    row.axes = positions.size();
    row.n = frequencies.size() / positions.size();
    row.factor = factors.data();
    row.factor_stride = factors.size() == 1 ? 0 : 1;
    row.negate = negate;
    turns.Point(0, &row);
    return row;
  }
  __float128 Angle(std::size_t i) const {
    __float128 angle = 0;
    const std::size_t n = frequencies.size() / positions.size();
    for (std::size_t axis = 0; axis < positions.size(); ++axis) {
      angle +=
          static_cast<__float128>(positions[axis]) * frequencies[axis * n + i];
    }
    return negate ? -angle : angle;
  }
  float Cos(std::size_t i) const {
    return static_cast<float>(Factor(i) * cosq(Angle(i)));
  }
  float Sin(std::size_t i) const {
    return static_cast<float>(Factor(i) * sinq(Angle(i)));
  }
  __float128 Factor(std::size_t i) const {
    return factors[factors.size() == 1 ? 0 : i];
  }

  std::vector<double> positions, frequencies, factors = {1};
  QuarterTurnArrays turns;
  bool negate = false;
};

class RandomRows {
 public:
  Row Next() {
    const int axes = 1 + static_cast<int>(random_() % 3);
    std::vector<double> positions;
    for (int axis = 0; axis < axes; ++axis) positions.push_back(Position());
    Row row(positions);
    std::vector<double> w;
    for (int i = 0; i < axes * kPairs; ++i) w.push_back(Frequency());
    row.SetFrequencies(w);
    row.negate = random_() % 2 == 0;
    return row;
  }
  std::uint64_t operator()() { return random_(); }
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

  static constexpr int kPairs = 11;

 private:
  double Position() {
    const double whole = std::floor(Between(-0x1p26, 0x1p26));
    return random_() % 2 == 0 ? whole : whole / 64;
  }
  double Frequency() { return std::exp2(Between(-20, 0)); }

  std::mt19937_64 random_{1};
};

TEST(RoundExactlyTest, AnyPairIsRoundedRight) {
  RandomRows random;
  for (int round = 0; round < 3000; ++round) {
    Row row = random.Next();
    row.factors = {random.Between(0.1, 2)};
    for (std::size_t i = 0; i < RandomRows::kPairs; ++i) {
      const RoundedCosSin rounded = RoundExactly(row.View(), i);
      ASSERT_EQ(rounded.cos, row.Cos(i));
      ASSERT_EQ(rounded.sin, row.Sin(i));
    }
  }
}

// Each factor moves a cosine or a sine of its pair so close to halfway that
// float64 cannot tell on which side it is.
TEST(RoundExactlyTest, RowsNextToHalfwayAreRoundedRight) {
  RandomRows random;
  std::int64_t near = 0, twice = 0;
  for (int round = 0; round < 3000; ++round) {
    Row row = random.Next();
    row.factors.resize(RandomRows::kPairs);
    for (std::size_t i = 0; i < RandomRows::kPairs; ++i) {
      const __float128 angle = row.Angle(i);
      const __float128 value = random() % 2 == 0 ? cosq(angle) : sinq(angle);
      const auto below = static_cast<float>(value * random.Between(0.5, 2));
      const double halfway =
          (static_cast<double>(below) +
           static_cast<double>(std::nextafter(below, HUGE_VALF))) /
          2;
      row.factors[i] = static_cast<double>(halfway / value);
    }
    const simd::TrigRow view = row.View();
    float cos[RandomRows::kPairs], sin[RandomRows::kPairs];
    double wide_cos[RandomRows::kPairs], wide_sin[RandomRows::kPairs];
    FillCosSinRow(view, cos, sin);
    FillCosSinRow(view, wide_cos, wide_sin);
    for (std::size_t i = 0; i < RandomRows::kPairs; ++i) {
      ASSERT_EQ(cos[i], row.Cos(i)) << round << " " << i;
      ASSERT_EQ(sin[i], row.Sin(i)) << round << " " << i;
      ++near;
      twice += static_cast<float>(wide_cos[i]) != cos[i] ||
               static_cast<float>(wide_sin[i]) != sin[i];
    }
  }
  // Checks that the cases are hard: with float64 alone, many values are wrong.
  EXPECT_GT(twice, near / 10);
}

// Values from published encodings: qwen3-8b-yarn, kimi-k2.
struct Seen {
  double position, frequency, factor;
};
constexpr Seen kSeen[] = {
    {52696, 0x1.74eea61c12623p-15, 0x1.237d37fe5d298p+0},
    {1380021, 0x1.11ea80df0678ap-4, 1},
};

TEST(RoundExactlyTest, ValuesThatWereSeenAreRoundedRight) {
  for (const Seen& seen : kSeen) {
    Row row({seen.position});
    row.SetFrequencies({seen.frequency});
    row.factors = {seen.factor};
    float cos, sin;
    FillCosSinRow(row.View(), &cos, &sin);
    EXPECT_EQ(cos, row.Cos(0));
    EXPECT_EQ(sin, row.Sin(0));
  }
}

class ExactRoundingTest : public testing::TestWithParam<const char*> {};

TEST_P(ExactRoundingTest, KernelsReportValuesNearHalfway) {
  const simd::KernelTable* kernels = reference::FindKernels(GetParam());
  if (kernels == nullptr) {
    GTEST_SKIP() << "this CPU or build has no " << GetParam();
  }
  // Puts the value at each place of rows that need whole and partial vectors.
  for (const Seen& seen : kSeen) {
    for (const std::size_t n : {1, 7, 8, 13, 16}) {
      for (std::size_t place = 0; place < n; ++place) {
        Row row({seen.position});
        std::vector<double> w(n, 0.25);
        row.factors = {seen.factor};
        std::vector<float> cos(n), sin(n);
        row.SetFrequencies(w);
        EXPECT_FALSE(kernels->trig_row_f32(row.View(), cos.data(), sin.data()));
        w[place] = seen.frequency;
        row.SetFrequencies(w);
        EXPECT_TRUE(kernels->trig_row_f32(row.View(), cos.data(), sin.data()));
      }
    }
  }
  // The kernel must report few rows of other values, which are rarely near
  // halfway.
  RandomRows random;
  int near = 0;
  for (int round = 0; round < 3000; ++round) {
    const Row row = random.Next();
    float cos[RandomRows::kPairs], sin[RandomRows::kPairs];
    near += kernels->trig_row_f32(row.View(), cos, sin);
  }
  EXPECT_LT(near, 2);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, ExactRoundingTest,
                         testing::ValuesIn(reference::kInstructionSets),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace posenc::core
