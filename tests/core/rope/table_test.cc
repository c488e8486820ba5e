// Cosine and sine tables against __float128: roundings, layouts, axes, xPos,
// attention factors, and the directions of a rotation.

#include "core/rope/table.h"

#include <cmath>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reference/float_formats.h"
#include "tests/reference/rope_reference.h"

namespace posenc::core {
namespace {

using reference::Quad;
using ::testing::ElementsAre;

RopeSpec Explicit(std::vector<double> values, std::int32_t heads = 0,
                  std::int32_t axes = 0) {
  RopeSpec spec;
  spec.pairing = Pairing::kHalfSplit;
  spec.rotary_dim = static_cast<std::int32_t>(
      2 * values.size() / std::max(heads, 1) / std::max(axes, 1));
  spec.scaling = ExplicitFrequencies{std::move(values), heads, axes};
  return spec;
}

RopeSpec Plain(std::int32_t rotary_dim) {
  RopeSpec spec;
  spec.pairing = Pairing::kHalfSplit;
  spec.rotary_dim = rotary_dim;
  spec.rope_theta = 10000;
  return spec;
}

ResolvedRope Resolve(const RopeSpec& spec) {
  auto rope = ResolveSpec(spec, 0, std::nullopt, MissingLength::kError);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return *rope;
}

TokenPositions OneAxis(std::vector<double> values) {
  const auto tokens = static_cast<std::int64_t>(values.size());
  return TokenPositions(std::move(values), 1, 1, tokens);
}

template <typename T>
struct Table {
  Shape shape;
  std::vector<T> cos, sin;
};

template <typename T>
Table<T> Build(const ResolvedRope& rope, const TokenPositions& positions,
               Dtype dtype, TableLayout layout = TableLayout::kHalf,
               TensorRole role = TensorRole::kQuery) {
  Table<T> table;
  table.shape = TableShape(rope, positions.tokens(), layout);
  const std::int64_t count = *ElementCount(table.shape);
  table.cos.resize(count);
  const bool complex = layout == TableLayout::kComplex;
  if (!complex) table.sin.resize(count);
  const absl::Status status = BuildRopeTable(
      std::make_shared<const PreparedRope>(rope), positions, layout, role,
      {dtype, table.shape, table.cos.data()},
      {dtype, table.shape, complex ? nullptr : table.sin.data()});
  EXPECT_TRUE(status.ok()) << status;
  return table;
}

// 1024 positions up to 2^26 and 128 frequencies in [2^-30, 4): 131072 angles,
// 262144 values.
struct Points {
  std::vector<double> positions, frequencies;

  explicit Points(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 1024; ++i) {
      const auto position = static_cast<double>(random() >> 38);
      positions.push_back(i % 4 == 3 ? -position : position);
    }
    std::uniform_real_distribution<double> exponent(-30, 2);
    for (int i = 0; i < 128; ++i) {
      frequencies.push_back(std::exp2(exponent(random)));
    }
  }
};

TEST(TableTest, Float64IsWithinTwoUlp) {
  const Points points(2);
  const auto table = Build<double>(Resolve(Explicit(points.frequencies)),
                                   OneAxis(points.positions), Dtype::kFloat64);
  std::size_t at = 0;
  for (const double p : points.positions) {
    for (const double w : points.frequencies) {
      ASSERT_LE(reference::UlpError(table.cos[at], reference::Cos(p, w)), 2)
          << p << " * " << w;
      ASSERT_LE(reference::UlpError(table.sin[at], reference::Sin(p, w)), 2)
          << p << " * " << w;
      ++at;
    }
  }
}

TEST(TableTest, SixteenBitsAreRoundedOnce) {
  const Points points(3);
  const std::pair<Dtype, reference::Format16> formats[] = {
      {Dtype::kFloat16, reference::kFloat16},
      {Dtype::kBfloat16, reference::kBfloat16}};
  for (const auto& [dtype, format] : formats) {
    const auto table =
        Build<std::uint16_t>(Resolve(Explicit(points.frequencies)),
                             OneAxis(points.positions), dtype);
    std::size_t at = 0;
    for (const double p : points.positions) {
      for (const double w : points.frequencies) {
        const auto cos = static_cast<double>(reference::Cos(p, w));
        const auto sin = static_cast<double>(reference::Sin(p, w));
        ASSERT_EQ(table.cos[at], reference::Encode16(format, cos));
        ASSERT_EQ(table.sin[at], reference::Encode16(format, sin));
        ++at;
      }
    }
  }
}

TEST(TableTest, Float32AnglesAreProductsRoundedToFloat32) {
  const Points points(4);
  RopeSpec spec = Explicit(points.frequencies);
  spec.angle_precision = AnglePrecision::kFloat32;
  const auto table =
      Build<float>(Resolve(spec), OneAxis(points.positions), Dtype::kFloat32);
  std::size_t at = 0, differ = 0;
  for (const double p : points.positions) {
    for (const double w : points.frequencies) {
      const float angle = static_cast<float>(p) * static_cast<float>(w);
      ASSERT_EQ(table.cos[at], static_cast<float>(reference::Cos(1, angle)));
      ASSERT_EQ(table.sin[at], static_cast<float>(reference::Sin(1, angle)));
      differ += table.cos[at] != static_cast<float>(reference::Cos(p, w));
      ++at;
    }
  }
  // Otherwise the test would not distinguish the two precisions.
  EXPECT_GT(differ, at / 2);
}

TEST(TableTest, ExtremePositionsAndFractionsAreExact) {
  const std::vector<double> positions = {
      0x1p31, -0x1p31, 0x1p31 - 0.5, 1.0 / 3, -1e-9, 123456789.123456789, 0.0};
  const std::vector<double> frequencies = {1, 0x1p20, 1e-12, 0.1, -0.7, 0};
  const auto table = Build<float>(Resolve(Explicit(frequencies)),
                                  OneAxis(positions), Dtype::kFloat32);
  std::size_t at = 0;
  for (const double p : positions) {
    for (const double w : frequencies) {
      EXPECT_EQ(table.cos[at], static_cast<float>(reference::Cos(p, w)))
          << p << " * " << w;
      EXPECT_EQ(table.sin[at], static_cast<float>(reference::Sin(p, w)))
          << p << " * " << w;
      ++at;
    }
  }
}

TEST(TableTest, LayoutsArrangeTheSameValues) {
  const ResolvedRope rope = Resolve(Plain(6));
  const TokenPositions positions = OneAxis({0, 1, 5, 1000});
  const auto half = Build<float>(rope, positions, Dtype::kFloat32);
  const auto duplicated =
      Build<float>(rope, positions, Dtype::kFloat32, TableLayout::kDuplicated);
  const auto repeated = Build<float>(rope, positions, Dtype::kFloat32,
                                     TableLayout::kPairRepeated);
  const auto complex =
      Build<float>(rope, positions, Dtype::kFloat32, TableLayout::kComplex);
  EXPECT_THAT(half.shape, ElementsAre(4, 3));
  EXPECT_THAT(duplicated.shape, ElementsAre(4, 6));
  EXPECT_THAT(repeated.shape, ElementsAre(4, 6));
  EXPECT_THAT(complex.shape, ElementsAre(4, 3, 2));
  for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < 3; ++i) {
      const float c = half.cos[t * 3 + i];
      const float s = half.sin[t * 3 + i];
      EXPECT_EQ(duplicated.cos[t * 6 + i], c);
      EXPECT_EQ(duplicated.cos[t * 6 + 3 + i], c);
      EXPECT_EQ(duplicated.sin[t * 6 + i], s);
      EXPECT_EQ(duplicated.sin[t * 6 + 3 + i], s);
      EXPECT_EQ(repeated.cos[t * 6 + 2 * i], c);
      EXPECT_EQ(repeated.cos[t * 6 + 2 * i + 1], c);
      EXPECT_EQ(repeated.sin[t * 6 + 2 * i], s);
      EXPECT_EQ(repeated.sin[t * 6 + 2 * i + 1], s);
      EXPECT_EQ(complex.cos[t * 6 + 2 * i], c);
      EXPECT_EQ(complex.cos[t * 6 + 2 * i + 1], s);
    }
  }
}

TEST(TableTest, HeadsOfTheirOwnComeInFront) {
  const ResolvedRope rope = Resolve(Explicit({1, 2, 3, 4, 5, 6}, 3));
  const auto table = Build<float>(rope, OneAxis({7, 8}), Dtype::kFloat32);
  EXPECT_THAT(table.shape, ElementsAre(3, 2, 2));
  for (int h = 0; h < 3; ++h) {
    for (int t = 0; t < 2; ++t) {
      for (int i = 0; i < 2; ++i) {
        const double w = h * 2 + i + 1;
        EXPECT_EQ(table.cos[(h * 2 + t) * 2 + i],
                  static_cast<float>(reference::Cos(7 + t, w)));
      }
    }
  }
}

TEST(TableTest, AnglesOfSeveralAxesAddUp) {
  // [axes, pairs] = 2 x 300: a row has more pairs than kStackPairs.
  std::vector<double> frequencies;
  for (int i = 0; i < 600; ++i) frequencies.push_back(0.001 * (i + 1));
  for (const bool float32 : {false, true}) {
    RopeSpec spec = Explicit(frequencies, 0, 2);
    if (float32) spec.angle_precision = AnglePrecision::kFloat32;
    const TokenPositions positions({3, 1000, 5, -77}, 2, 1, 2);
    const auto table = Build<float>(Resolve(spec), positions, Dtype::kFloat32);
    for (int t = 0; t < 2; ++t) {
      const double y = positions.at(0, 0, t), x = positions.at(1, 0, t);
      for (int i = 0; i < 300; ++i) {
        const double wy = frequencies[i], wx = frequencies[300 + i];
        const float rounded = static_cast<float>(y) * static_cast<float>(wy) +
                              static_cast<float>(x) * static_cast<float>(wx);
        const Quad cy = reference::Cos(y, wy), sy = reference::Sin(y, wy);
        const Quad cx = reference::Cos(x, wx), sx = reference::Sin(x, wx);
        const float expected = static_cast<float>(
            float32 ? reference::Cos(1, rounded) : cy * cx - sy * sx);
        ASSERT_EQ(table.cos[t * 300 + i], expected) << i;
      }
    }
  }
}

TEST(TableTest, PairsFollowTheirAxis) {
  RopeSpec spec = Plain(1200);
  spec.axes = RotaryAxes{AxisAssignment::kSectioned, {100, 300, 200}};
  const ResolvedRope rope = Resolve(spec);
  const TokenPositions positions({7, 100, 31}, 3, 1, 1);
  for (const bool float32 : {false, true}) {
    ResolvedRope chosen = rope;
    if (float32) chosen.spec.angle_precision = AnglePrecision::kFloat32;
    const auto table = Build<float>(chosen, positions, Dtype::kFloat32);
    for (int i = 0; i < 600; ++i) {
      const double p = i < 100 ? 7 : i < 400 ? 100 : 31;
      const float angle =
          static_cast<float>(p) * static_cast<float>(rope.inv_freq[i]);
      ASSERT_EQ(
          table.sin[i],
          static_cast<float>(float32 ? reference::Sin(1, angle)
                                     : reference::Sin(p, rope.inv_freq[i])));
    }
  }
}

TEST(TableTest, WideAndLongTablesAreServed) {
  const ResolvedRope wide = Resolve(Plain(4096));
  const auto row = Build<float>(wide, OneAxis({12345}), Dtype::kFloat32);
  ASSERT_EQ(row.cos.size(), 2048u);
  for (int i = 0; i < 2048; ++i) {
    ASSERT_EQ(row.cos[i],
              static_cast<float>(reference::Cos(12345, wide.inv_freq[i])));
  }
  std::vector<double> positions(8192);
  for (int t = 0; t < 8192; ++t) positions[t] = t;
  const ResolvedRope rope = Resolve(Plain(1024));
  const auto table = Build<float>(rope, OneAxis(positions), Dtype::kFloat32,
                                  TableLayout::kDuplicated);
  EXPECT_THAT(table.shape, ElementsAre(8192, 1024));
  for (int i = 0; i < 512; ++i) {
    ASSERT_EQ(table.sin[8191 * 1024 + 512 + i],
              static_cast<float>(reference::Sin(8191, rope.inv_freq[i])));
  }
}

TEST(TableTest, AmplitudeMultipliesAndReverseTurnsBack) {
  RopeSpec spec = Plain(64);
  spec.attention_factor = 1.25;
  spec.reverse = true;
  const ResolvedRope rope = Resolve(spec);
  const auto table = Build<float>(rope, OneAxis({999}), Dtype::kFloat32);
  for (int i = 0; i < 32; ++i) {
    const double w = rope.inv_freq[i];
    EXPECT_EQ(table.cos[i], static_cast<float>(1.25 * reference::Cos(999, w)));
    EXPECT_EQ(table.sin[i], static_cast<float>(-1.25 * reference::Sin(999, w)));
  }
}

TEST(TableTest, XPosMultipliesQueriesAndDividesKeys) {
  RopeSpec spec = Plain(64);
  spec.xpos = XPos{512, 0.4, 100};
  const ResolvedRope rope = Resolve(spec);
  const auto q = Build<double>(rope, OneAxis({1124}), Dtype::kFloat64);
  const auto k = Build<double>(rope, OneAxis({1124}), Dtype::kFloat64,
                               TableLayout::kHalf, TensorRole::kKey);
  for (int i = 0; i < 32; ++i) {
    // (1124 - 100) / 512 = 2: the square of zeta.
    const Quad zeta = (Quad(2 * i) / 64 + Quad(0.4)) / (1 + Quad(0.4));
    const Quad cos = reference::Cos(1124, rope.inv_freq[i]);
    // 2 ulp of the cosine, 1/2 of the factor, 1/2 of their product, and the
    // logarithm of zeta rounded to float64: |2 ln zeta| * 2^-53 < 2.6 ulp.
    EXPECT_LE(reference::UlpError(q.cos[i], cos * zeta * zeta), 6) << i;
    EXPECT_LE(reference::UlpError(k.cos[i], cos / (zeta * zeta)), 6) << i;
  }
}

// Rows of the three directions, with all factors.
class DirectionTest : public ::testing::Test {
 protected:
  DirectionTest() {
    RopeSpec spec = Plain(64);
    spec.attention_factor = 1.5;
    spec.xpos = XPos{512, 0.4, 0};
    rope_ = Resolve(spec);
  }

  // cos + i sin of pair i.
  std::vector<double> Row(Direction direction, TensorRole role) const {
    const CosSinEvaluator rows(rope_, direction, role, &scale_);
    std::vector<double> row(64);
    rows.Row(&position_, row.data());
    return row;
  }

  const double position_ = 20000;
  const QueryScale scale_{0.1, 8192, 1};
  ResolvedRope rope_;
};

TEST_F(DirectionTest, InverseUndoesForward) {
  for (const TensorRole role : {TensorRole::kQuery, TensorRole::kKey}) {
    const auto forward = Row(Direction::kForward, role);
    const auto inverse = Row(Direction::kInverse, role);
    for (int i = 0; i < 32; ++i) {
      // The product of the two complex numbers. Each part is within 8 ulp of
      // its modulus (above), and the moduli multiply to 1.
      const double re =
          forward[i] * inverse[i] - forward[32 + i] * inverse[32 + i];
      const double im =
          forward[i] * inverse[32 + i] + forward[32 + i] * inverse[i];
      // xPos: the exponent |20000 / 512 * ln zeta| is below 49, with a relative
      // error of 2^-53 in each direction.
      EXPECT_NEAR(re, 1, 128 * 0x1p-53) << i;
      EXPECT_NEAR(im, 0, 128 * 0x1p-53) << i;
    }
  }
}

TEST_F(DirectionTest, AdjointIsTheTranspose) {
  for (const TensorRole role : {TensorRole::kQuery, TensorRole::kKey}) {
    const auto forward = Row(Direction::kForward, role);
    const auto adjoint = Row(Direction::kAdjoint, role);
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(adjoint[i], forward[i]);
      EXPECT_EQ(adjoint[32 + i], -forward[32 + i]);
    }
  }
}

TEST_F(DirectionTest, QueryScaleIsForQueriesOnly) {
  // floor(20001 / 8192) = 2.
  const double expected = 1 + 0.1 * std::log(3.0);
  const CosSinEvaluator q(rope_, Direction::kForward, TensorRole::kQuery,
                          &scale_);
  const CosSinEvaluator undo(rope_, Direction::kInverse, TensorRole::kQuery,
                             &scale_);
  const CosSinEvaluator k(rope_, Direction::kForward, TensorRole::kKey,
                          &scale_);
  EXPECT_DOUBLE_EQ(q.HeadScale(&position_), expected);
  EXPECT_DOUBLE_EQ(undo.HeadScale(&position_), 1 / expected);
  EXPECT_EQ(k.HeadScale(&position_), 1);
}

}  // namespace
}  // namespace posenc::core
