// Specs that are refused: code, field, numbers.

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/rope/frequencies.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/bad_input.h"
#include "tests/fixtures/rope_spec.h"

namespace posenc::core {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class BadSpecTest : public ::testing::TestWithParam<BadInput<RopeSpec>> {};

TEST_P(BadSpecTest, IsRefusedWithFieldAndNumbers) {
  RopeSpec spec = Plain(64);
  GetParam().spoil(spec);
  const auto rope = ResolveSpec(spec, 64, std::nullopt, MissingLength::kError);
  ExpectRefused(GetParam(), rope.status());
}

std::vector<BadInput<RopeSpec>> BadCases() {
  constexpr auto kBad = ErrorReason::kFieldInvalid;
  constexpr auto kMissing = ErrorReason::kFieldRequired;
  using S = RopeSpec&;
  const auto axes = [](AxisAssignment assignment,
                       std::vector<std::int32_t> sections) {
    return [=](S s) { s.axes = RotaryAxes{assignment, sections}; };
  };
  const auto yarn = [](std::function<void(YarnScaling&)> change) {
    return [=](S s) {
      YarnScaling scaling = Yarn(4, 1024);
      change(scaling);
      s.scaling = scaling;
    };
  };
  const auto longrope = [](std::function<void(LongRopeScaling&)> change) {
    return [=](S s) {
      LongRopeScaling scaling = LongRope(32);
      change(scaling);
      s.scaling = scaling;
    };
  };
  return {
      {"OddWidth", [](S s) { s.rotary_dim = 63; }, kBad, "rotary_dim", {"63"}},
      {"NegativeWidth",
       [](S s) { s.rotary_dim = -2; },
       kBad,
       "rotary_dim",
       {"-2"}},
      {"WidthAboveHead",
       [](S s) { s.rotary_dim = 66; },
       kBad,
       "rotary_dim",
       {"66", "64"}},
      {"NoPairing",
       [](S s) { s.pairing = Pairing::kUnspecified; },
       kMissing,
       "pairing",
       {}},
      {"ThetaOne", [](S s) { s.rope_theta = 1; }, kBad, "rope_theta", {"1"}},
      {"ThetaNegative",
       [](S s) { s.rope_theta = -5; },
       kBad,
       "rope_theta",
       {"-5"}},
      {"ThetaInfinite",
       [](S s) { s.rope_theta = kInf; },
       kBad,
       "rope_theta",
       {"inf"}},
      {"ThetaNan",
       [](S s) { s.rope_theta = kNan; },
       kBad,
       "rope_theta",
       {"nan"}},
      {"AmplitudeZero",
       [](S s) { s.attention_factor = 0; },
       kBad,
       "amplitude",
       {"0"}},
      {"AmplitudeNan",
       [](S s) { s.attention_factor = kNan; },
       kBad,
       "amplitude",
       {"nan"}},
      {"LinearUnset",
       [](S s) { s.scaling = LinearScaling{}; },
       kMissing,
       "linear.factor",
       {}},
      {"LinearNegative",
       [](S s) { s.scaling = LinearScaling{-1}; },
       kBad,
       "linear.factor",
       {"-1"}},
      {"NtkNan",
       [](S s) { s.scaling = NtkScaling{kNan}; },
       kBad,
       "ntk.factor",
       {"nan"}},
      {"NtkInfinite",
       [](S s) { s.scaling = NtkScaling{kInf}; },
       kBad,
       "ntk.factor",
       {"inf"}},
      {"NtkTwoChannels",
       [](S s) {
         s.rotary_dim = 2;
         s.scaling = NtkScaling{2};
       },
       kBad,
       "ntk",
       {"2 channels"}},
      {"NtkPerAxisOnePair",
       [](S s) {
         s.axes = RotaryAxes{AxisAssignment::kPerAxis, {31, 1}};
         s.scaling = NtkScaling{2};
       },
       kBad,
       "ntk",
       {"2 channels"}},
      {"DynamicNoLength",
       [](S s) {
         s.scaling = DynamicNtkScaling{2, 2048};
       },
       kMissing,
       "sequence_length",
       {"2048"}},
      {"DynamicNoMaximum",
       [](S s) {
         s.scaling = DynamicNtkScaling{2, 0};
       },
       kMissing,
       "dynamic_ntk.max_position_embeddings",
       {}},
      {"LongRopeNoLength",
       longrope([](LongRopeScaling&) {}),
       kMissing,
       "sequence_length",
       {"4096"}},
      {"LongRopeFewFactors",
       longrope([](LongRopeScaling& l) { l.long_factor.pop_back(); }),
       kBad,
       "longrope.long_factor",
       {"31", "32"}},
      {"LongRopeZeroFactor",
       longrope([](LongRopeScaling& l) { l.short_factor[7] = 0; }),
       kBad,
       "longrope.short_factor[7]",
       {"0"}},
      {"LongRopeOriginalOne",
       longrope(
           [](LongRopeScaling& l) { l.original_max_position_embeddings = 1; }),
       kBad,
       "longrope.original_max_position_embeddings",
       {"1"}},
      {"YarnNoOriginal",
       yarn([](YarnScaling& y) { y.original_max_position_embeddings = 0; }),
       kMissing,
       "yarn.original_max_position_embeddings",
       {}},
      {"YarnNegativeOriginal",
       yarn([](YarnScaling& y) { y.original_max_position_embeddings = -7; }),
       kBad,
       "yarn.original_max_position_embeddings",
       {"-7"}},
      {"YarnBetas",
       yarn([](YarnScaling& y) { y.beta_fast = 0.5; }),
       kBad,
       "yarn.beta_fast",
       {"0.5", "1"}},
      {"YarnAttentionFactor",
       yarn([](YarnScaling& y) { y.attention_factor = -2; }),
       kBad,
       "yarn.attention_factor",
       {"-2"}},
      {"YarnMscaleNegativeAmplitude",
       yarn([](YarnScaling& y) {
         y.mscale = -100;
         y.mscale_all_dim = 1;
       }),
       kBad,
       "yarn.mscale",
       {"-100"}},
      {"Llama3Order",
       [](S s) {
         s.scaling = Llama3Scaling{8, 4, 4, 8192};
       },
       kBad,
       "llama3.high_freq_factor",
       {"4"}},
      {"ProportionalNone",
       [](S s) { s.scaling = ProportionalScaling{}; },
       kMissing,
       "proportional.rotating_pairs",
       {"32"}},
      {"ProportionalMany",
       [](S s) {
         s.scaling = ProportionalScaling{1, 33};
       },
       kBad,
       "proportional.rotating_pairs",
       {"33", "32"}},
      {"FrequencyTooHigh",
       [](S s) { s.scaling = LinearScaling{1e-9}; },
       kBad,
       "linear",
       {"2^20"}},
      {"ExplicitWithTheta",
       [](S s) { s.scaling = ExplicitFrequencies{std::vector<double>(32, 1)}; },
       kBad,
       "rope_theta",
       {"10000"}},
      {"ExplicitCount",
       [](S s) {
         s.rope_theta.reset();
         s.scaling = ExplicitFrequencies{std::vector<double>(63, 1), 2};
       },
       kBad,
       "explicit_frequencies.values",
       {"63", "64"}},
      {"ExplicitNan",
       [](S s) {
         s.rope_theta.reset();
         s.scaling = ExplicitFrequencies{std::vector<double>(32, kNan)};
       },
       kBad,
       "explicit_frequencies.values[0]",
       {"nan"}},
      {"ExplicitTooHigh",
       [](S s) {
         s.rope_theta.reset();
         s.scaling = ExplicitFrequencies{std::vector<double>(32, 1048577)};
       },
       kBad,
       "explicit_frequencies.values[0]",
       {"1048577"}},
      {"ExplicitAxesWithAxes",
       [](S s) {
         s.rope_theta.reset();
         s.axes = RotaryAxes{AxisAssignment::kSectioned, {16, 16}};
         s.scaling = ExplicitFrequencies{std::vector<double>(64, 1), 0, 2};
       },
       kBad,
       "axes",
       {"2"}},
      {"AxesNoAssignment",
       axes(AxisAssignment::kUnspecified, {16, 16}),
       kMissing,
       "axes.assignment",
       {}},
      {"SectionsSum",
       axes(AxisAssignment::kSectioned, {16, 15}),
       kBad,
       "axes.sections",
       {"31", "32"}},
      {"SectionNegative",
       axes(AxisAssignment::kSectioned, {33, -1}),
       kBad,
       "axes.sections[1]",
       {"-1"}},
      {"InterleavedUnmet",
       axes(AxisAssignment::kInterleaved, {8, 12, 12}),
       kBad,
       "axes.sections",
       {"12"}},
      {"AlternatingUnequal",
       axes(AxisAssignment::kAlternatingTail, {10, 10, 12}),
       kBad,
       "axes.sections",
       {"12"}},
      {"AlternatingTwoAxes",
       axes(AxisAssignment::kAlternatingTail, {16, 16}),
       kBad,
       "axes.sections",
       {"16"}},
      {"ThetasNotPerAxis",
       [](S s) {
         s.axes = RotaryAxes{AxisAssignment::kSectioned, {16, 16}, {10, 10}};
       },
       kBad,
       "axes.axis_thetas",
       {}},
      {"ThetasCount",
       [](S s) {
         s.axes = RotaryAxes{AxisAssignment::kPerAxis, {16, 16}, {10}};
       },
       kBad,
       "axes.axis_thetas",
       {"1", "2"}},
      {"PositionAxesCount",
       [](S s) {
         s.axes = RotaryAxes{.assignment = AxisAssignment::kSectioned,
                             .sections = {16, 16},
                             .position_axes = {1}};
       },
       kBad,
       "axes.position_axes",
       {"1", "2"}},
      {"PositionAxesTwice",
       [](S s) {
         s.axes = RotaryAxes{.assignment = AxisAssignment::kSectioned,
                             .sections = {16, 16},
                             .position_axes = {1, 1}};
       },
       kBad,
       "axes.position_axes[1]",
       {"once"}},
      {"PositionAxesOutside",
       [](S s) {
         s.axes = RotaryAxes{.assignment = AxisAssignment::kSectioned,
                             .sections = {16, 16},
                             .position_axes = {0, -1}};
       },
       kBad,
       "axes.position_axes[1]",
       {"-1"}},
      {"HalvesInterleaved",
       [](S s) {
         s.pairing = Pairing::kInterleaved;
         s.axes = RotaryAxes{AxisAssignment::kPerAxis, {16, 16}, {}, true};
       },
       kBad,
       "axes.halves_per_axis",
       {}},
      {"XPosAxes",
       [](S s) {
         s.axes = RotaryAxes{AxisAssignment::kSectioned, {16, 16}};
         s.xpos = XPos{};
       },
       kBad,
       "xpos",
       {"2"}},
      {"XPosCenter",
       [](S s) {
         s.xpos = XPos{};
         s.xpos->center = kInf;
       },
       kBad,
       "xpos.center",
       {"inf"}},
      {"ExplicitHeads",
       [](S s) {
         s.rope_theta.reset();
         s.scaling = ExplicitFrequencies{{1}, -1, 0};
       },
       kBad,
       "explicit_frequencies.heads",
       {"-1"}},
      {"ExplicitAxes",
       [](S s) {
         s.rope_theta.reset();
         s.scaling = ExplicitFrequencies{{1}, 0, 17};
       },
       kBad,
       "explicit_frequencies.axes",
       {"17", "16"}},
      {"ExplicitEmpty",
       [](S s) {
         s.rope_theta.reset();
         s.scaling = ExplicitFrequencies{};
       },
       kMissing,
       "explicit_frequencies.values",
       {"32"}},
      {"SectionsNone",
       axes(AxisAssignment::kSectioned, {}),
       kMissing,
       "axes.sections",
       {"32"}},
      {"SectionsMany",
       axes(AxisAssignment::kSectioned, std::vector<std::int32_t>(33, 1)),
       kBad,
       "axes.sections",
       {"33"}},
      {"YarnBetaSlow",
       yarn([](YarnScaling& s) { s.beta_slow = -1; }),
       kBad,
       "yarn.beta_slow",
       {"-1"}},
      {"YarnMscaleInfinite",
       yarn([](YarnScaling& s) { s.mscale = kInf; }),
       kBad,
       "yarn.mscale",
       {"inf"}},
      {"LongRopeNoFactors",
       longrope([](LongRopeScaling& s) { s.short_factor.clear(); }),
       kMissing,
       "longrope.short_factor",
       {"32"}},
      {"XPosScaleBase",
       [](S s) {
         s.xpos = XPos{};
         s.xpos->scale_base = 0;
       },
       kBad,
       "xpos.scale_base",
       {"0"}},
      {"NopeWithTheta",
       [](S s) {
         s = RopeSpec{};
         s.nope = true;
         s.rope_theta = 10000;
       },
       kBad,
       "nope",
       {"rope_theta"}},
  };
}

INSTANTIATE_TEST_SUITE_P(BadInput, BadSpecTest, ::testing::ValuesIn(BadCases()),
                         NameOf<RopeSpec>);

TEST(BadWidthTest, OddHeadsCannotRotateWhole) {
  RopeSpec spec;
  spec.pairing = Pairing::kHalfSplit;
  const auto rope = ResolveSpec(spec, 65, std::nullopt, MissingLength::kError);
  EXPECT_THAT(std::string(rope.status().message()), HasSubstr("65"));
}

TEST(BadWidthTest, WidthAboveTheLimitIsRefused) {
  const auto rope = ResolveSpec(Plain(kMaxRotaryDim + 2), 0, std::nullopt,
                                MissingLength::kError);
  EXPECT_THAT(std::string(rope.status().message()),
              ::testing::AllOf(HasSubstr("65538"), HasSubstr("65536")));
}

TEST(BadWidthTest, UnknownWidthIsRequired) {
  RopeSpec spec;
  spec.pairing = Pairing::kHalfSplit;
  const auto rope = ResolveSpec(spec, 0, std::nullopt, MissingLength::kError);
  const auto details = GetErrorDetails(rope.status());
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->reason, ErrorReason::kFieldRequired);
  EXPECT_EQ(details->field, "rotary_dim");
}

}  // namespace
}  // namespace posenc::core
