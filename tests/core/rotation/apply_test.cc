// Rotations against tests/reference/apply_reference.h.

#include "core/rotation/apply.h"

#include <array>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/interpretation/source.h"
#include "gtest/gtest.h"
#include "tests/reference/apply_reference.h"

namespace posenc::test {
namespace {

using core::Direction;
using core::Dtype;
using core::Layout;
using core::Pairing;

constexpr Direction kDirections[] = {Direction::kForward, Direction::kInverse,
                                     Direction::kAdjoint};
constexpr Pairing kPairings[] = {Pairing::kHalfSplit, Pairing::kInterleaved};

core::RopeSpec Spec(Pairing pairing) {
  core::RopeSpec spec;
  spec.pairing = pairing;
  return spec;
}

core::ApplyRopeArgs Args(const core::RopeSpec& spec, Layout layout,
                         const core::Positions& positions) {
  core::ApplyRopeArgs args;
  args.rope = core::interpretation::LookupOf(spec);
  args.layout = layout;
  args.positions = positions;
  args.saturation = core::Saturation::kFinite;
  return args;
}

// Rotates seeded q and k at seeded positions and checks every element.
void CheckBoth(const core::RopeSpec& spec, Layout layout, Dtype dtype,
               Direction direction, std::int64_t axes, const Extents& q_extents,
               const Extents& k_extents,
               const std::optional<core::QueryScale>& query_scale = {}) {
  std::mt19937_64 random(20240607);
  Tensor q(dtype, layout, q_extents), k(dtype, layout, k_extents);
  q.Fill(random);
  k.Fill(random);
  Grid grid = RandomGrid(axes, q_extents.batch, q_extents.tokens, random);
  if (query_scale.has_value()) {
    for (double& p : grid.values) p = std::abs(p);
  }
  Tensor q_out(dtype, layout, q_extents), k_out(dtype, layout, k_extents);
  core::ApplyRopeArgs args = Args(spec, layout, grid.Ids(layout));
  args.direction = direction;
  args.query_scale = query_scale;
  const core::ConstTensorView q_in = q.in(), k_in = k.in();
  const core::TensorView q_view = q_out.out(), k_view = k_out.out();
  const absl::Status status =
      core::ApplyRope(args, &q_in, &q_view, &k_in, &k_view);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(FindError(spec, args, grid, core::TensorRole::kQuery, q, q_out),
            "");
  EXPECT_EQ(FindError(spec, args, grid, core::TensorRole::kKey, k, k_out), "");
}

Extents E(Layout layout, std::int64_t heads, std::int64_t head_dim) {
  return layout == Layout::kThd ? Extents{1, 10, heads, head_dim}
                                : Extents{2, 5, heads, head_dim};
}

class EachDtype : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Core, EachDtype, testing::ValuesIn(kDtypes),
                         [](const testing::TestParamInfo<Dtype>& info) {
                           return std::string(core::DtypeName(info.param));
                         });

// q and k differ in heads and in head_dim throughout.
TEST_P(EachDtype, FollowsTheFormulaInEveryArrangement) {
  for (const Layout layout : kLayouts)
    for (const Pairing in : kPairings)
      for (const Pairing out : kPairings)
        for (const bool trailing : {false, true})
          for (const int width : {0, 2, 6, 16})
            for (const Direction direction : kDirections) {
              SCOPED_TRACE(absl::StrCat(
                  "layout ", static_cast<int>(layout), " pairings ",
                  static_cast<int>(in), " ", static_cast<int>(out),
                  " trailing ", trailing, " rotary_dim ", width, " direction ",
                  static_cast<int>(direction)));
              core::RopeSpec spec = Spec(in);
              spec.output_pairing = out;
              spec.rotary_dim = width;
              if (trailing) spec.slice = core::RotarySlice::kTrailing;
              CheckBoth(spec, layout, GetParam(), direction, 1,
                        E(layout, 4, 22), E(layout, 3, 16));
              if (HasFailure()) return;
            }
}

TEST_P(EachDtype, AppliesAmplitudeThetaAndReverse) {
  for (const Direction direction : kDirections)
    for (const bool reverse : {false, true})
      for (const Pairing pairing : kPairings) {
        core::RopeSpec spec = Spec(pairing);
        spec.attention_factor = 1.2079441541679836;
        spec.rope_theta = 500000;
        spec.reverse = reverse;
        CheckBoth(spec, Layout::kBshd, GetParam(), direction, 1, {2, 5, 3, 64},
                  {2, 5, 1, 64});
      }
}

TEST_P(EachDtype, AppliesXPosToQueriesAndItsReciprocalToKeys) {
  core::RopeSpec spec = Spec(Pairing::kInterleaved);
  // This large scale_base keeps factors moderate at positions of 60000.
  spec.xpos = core::XPos{65536, std::nullopt, 100};
  for (const Direction direction : kDirections) {
    CheckBoth(spec, Layout::kBhsd, GetParam(), direction, 1, {2, 5, 3, 16},
              {2, 5, 2, 16});
  }
}

TEST_P(EachDtype, ScalesWholeQueryHeadsOnly) {
  core::RopeSpec partial = Spec(Pairing::kHalfSplit);
  partial.rotary_dim = 8;
  core::RopeSpec nope;
  nope.nope = true;
  for (const core::RopeSpec& spec : {partial, nope})
    for (const Layout layout : kLayouts)
      for (const Direction direction : kDirections) {
        // 600 channels are more than one piece of the pass-through loop.
        CheckBoth(spec, layout, GetParam(), direction, 1, E(layout, 2, 600),
                  E(layout, 2, 600), core::QueryScale{0.1, 8192, 1});
      }
}

core::RotaryAxes Axes(core::AxisAssignment assignment,
                      std::vector<std::int32_t> sections) {
  core::RotaryAxes axes;
  axes.assignment = assignment;
  axes.sections = std::move(sections);
  return axes;
}

TEST_P(EachDtype, FollowsSeveralAxes) {
  std::vector<core::RotaryAxes> cases = {
      Axes(core::AxisAssignment::kSectioned, {4, 2, 6}),
      Axes(core::AxisAssignment::kInterleaved, {4, 4, 4}),
      Axes(core::AxisAssignment::kAlternatingTail, {4, 4, 4}),
      Axes(core::AxisAssignment::kPerAxis, {2, 3, 7}),
  };
  core::RotaryAxes thetas = Axes(core::AxisAssignment::kPerAxis, {4, 4, 4});
  thetas.axis_thetas = {100, 10000, 500};
  cases.push_back(thetas);
  for (const core::RotaryAxes& axes : cases)
    for (const Layout layout : kLayouts)
      for (const Pairing pairing : kPairings) {
        core::RopeSpec spec = Spec(pairing);
        spec.axes = axes;
        spec.rotary_dim = 24;
        CheckBoth(spec, layout, GetParam(), Direction::kForward, 3,
                  E(layout, 2, 28), E(layout, 1, 24));
      }
}

TEST_P(EachDtype, SplitsEachAxisIntoItsOwnHalves) {
  for (const bool trailing : {false, true})
    for (const Pairing out : kPairings)
      for (const Direction direction : kDirections) {
        core::RopeSpec spec = Spec(Pairing::kHalfSplit);
        spec.output_pairing = out;
        spec.rotary_dim = 24;
        if (trailing) spec.slice = core::RotarySlice::kTrailing;
        spec.axes = Axes(core::AxisAssignment::kPerAxis, {5, 7});
        spec.axes->halves_per_axis = true;
        CheckBoth(spec, Layout::kBshd, GetParam(), direction, 2, {2, 5, 2, 30},
                  {2, 5, 3, 24});
      }
}

TEST_P(EachDtype, TakesFrequenciesOfEachHead) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const std::int32_t axes : {1, 2})
    for (const std::int32_t heads : {0, 3})
      for (const Layout layout : kLayouts) {
        core::ExplicitFrequencies frequencies;
        frequencies.heads = heads;
        frequencies.axes = axes;
        for (int i = 0; i < std::max(heads, 1) * axes * 8; ++i) {
          frequencies.values.push_back(uniform(random));
        }
        core::RopeSpec spec = Spec(Pairing::kHalfSplit);
        spec.rotary_dim = 16;
        spec.scaling = frequencies;
        CheckBoth(spec, layout, GetParam(), Direction::kForward, axes,
                  E(layout, 3, 20), E(layout, 3, 16));
      }
}

// 151 tokens need several blocks of cosines and sines in most layouts, and the
// last block is shorter.
TEST_P(EachDtype, CrossesBlocksOfTokens) {
  for (const Layout layout : kLayouts) {
    const std::int64_t batch = layout == Layout::kThd ? 1 : 2;
    CheckBoth(Spec(Pairing::kHalfSplit), layout, GetParam(),
              Direction::kForward, 1, {batch, 151, 2, 128},
              {batch, 151, 1, 64});
  }
}

TEST_P(EachDtype, RotatesWideHeads) {
  CheckBoth(Spec(Pairing::kInterleaved), Layout::kBshd, GetParam(),
            Direction::kForward, 1, {1, 2, 1, 16384}, {1, 2, 1, 4096});
}

TEST(ApplyTest, RotatesQAndKOfDifferentDtypes) {
  std::mt19937_64 random(3);
  const Extents extents{2, 5, 2, 16};
  const Grid grid = RandomGrid(1, 2, 5, random);
  const core::RopeSpec spec = Spec(Pairing::kHalfSplit);
  const core::ApplyRopeArgs args =
      Args(spec, Layout::kBshd, grid.Ids(Layout::kBshd));
  for (const Dtype q_dtype : kDtypes)
    for (const Dtype k_dtype : kDtypes) {
      Tensor q(q_dtype, Layout::kBshd, extents), q_out = q;
      Tensor k(k_dtype, Layout::kBshd, extents), k_out = k;
      q.Fill(random);
      k.Fill(random);
      const core::ConstTensorView q_in = q.in(), k_in = k.in();
      const core::TensorView q_view = q_out.out(), k_view = k_out.out();
      ASSERT_TRUE(core::ApplyRope(args, &q_in, &q_view, &k_in, &k_view).ok());
      EXPECT_EQ(FindError(spec, args, grid, core::TensorRole::kQuery, q, q_out),
                "");
      EXPECT_EQ(FindError(spec, args, grid, core::TensorRole::kKey, k, k_out),
                "");
    }
}

// The example of tutorials on RoFormer: five tokens of four channels, base
// 10000, so that w = (1, 1/100). Rows are x at positions 0..4; the numbers are
// (x cos p w - y sin p w, x sin p w + y cos p w), written out to six digits.
TEST(ApplyTest, ReproducesTheWorkedExample) {
  const std::array<float, 20> x = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                   11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  const std::array<float, 20> expected = {
      1.000000f,  2.000000f,  3.000000f,   4.000000f,   -2.347314f,
      7.449169f,  6.919651f,  8.069599f,   -12.838296f, 4.022208f,
      10.757816f, 12.217585f, -14.845583f, -12.025335f, 14.513323f,
      16.442733f, 2.510503f,  -24.631228f, 18.185015f,  20.743799f};
  std::array<float, 20> rotated;
  const core::ConstTensorView in{Dtype::kFloat32, {1, 5, 1, 4}, x.data()};
  const core::TensorView out{Dtype::kFloat32, {1, 5, 1, 4}, rotated.data()};
  ASSERT_TRUE(core::ApplyRope(Args(Spec(Pairing::kInterleaved), Layout::kBshd,
                                   core::StartPosition{0}),
                              &in, &out, nullptr, nullptr)
                  .ok());
  for (int i = 0; i < 20; ++i) {
    // The expected numbers have six decimals. The rotation is off by 4 * 2^-24
    // of the pair's norm, which is at most 27.6.
    EXPECT_NEAR(rotated[i], expected[i], 5e-7 + 4 * 0x1p-24 * 27.6) << i;
  }
}

}  // namespace
}  // namespace posenc::test
