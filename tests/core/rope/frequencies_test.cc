// Frequencies and attention factors of every scaling against the formulas in
// __float128, and against published numbers.

#include "core/rope/frequencies.h"

#include <cmath>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/core/rope_spec.h"
#include "tests/reference/rope_reference.h"

namespace posenc::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ResolvedRope Resolve(const RopeSpec& spec, std::int64_t length = 1) {
  absl::StatusOr<ResolvedRope> rope =
      ResolveSpec(spec, 0, length, MissingLength::kError);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() ? *rope : ResolvedRope{};
}

struct Case {
  std::string name;
  RopeSpec spec;
  std::int64_t length = 1;
};

class FrequenciesTest : public ::testing::TestWithParam<Case> {};

TEST_P(FrequenciesTest, AreTheFormulaRoundedOnce) {
  const auto& [name, spec, length] = GetParam();
  const ResolvedRope rope = Resolve(spec, length);
  const std::vector<reference::Quad> exact = reference::InvFreq(spec, length);
  ASSERT_EQ(rope.inv_freq.size(), exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(rope.inv_freq[i], static_cast<double>(exact[i])) << "pair " << i;
  }
  EXPECT_EQ(rope.attention_factor,
            static_cast<double>(reference::Amplitude(spec, length)));
  EXPECT_EQ(rope.spec.attention_factor, rope.attention_factor);
}

std::vector<Case> AllScalings() {
  std::vector<Case> cases = {
      {"Plain", Plain(128)},
      {"TwoChannels", Plain(2)},
      {"Wide", Plain(4096, 5e6)},
      {"Linear", With(Plain(128), LinearScaling{8})},
      {"Ntk", With(Plain(128), NtkScaling{1000})},
      {"DynamicShort", With(Plain(64), DynamicNtkScaling{2, 2048}), 2048},
      {"DynamicLong", With(Plain(64), DynamicNtkScaling{2, 2048}), 2049},
      {"DynamicVeryLong", With(Plain(64), DynamicNtkScaling{4, 2048}), 1000000},
      {"Yarn", With(Plain(64), Yarn(40, 4096))},
      {"Qwen", With(Plain(128, 1e6), Yarn(4, 32768))},
      {"LongRopeShort", With(Plain(96), LongRope(48)), 4096},
      {"LongRopeLong", With(Plain(96), LongRope(48)), 4097},
      {"Llama3", With(Plain(128, 5e5), Llama3Scaling{8, 1, 4, 8192})},
      {"Llama3Fractional",
       With(Plain(128, 5e5), Llama3Scaling{32, 1.5, 3.25, 8192})},
      {"Proportional", With(Plain(512, 1e6), ProportionalScaling{8, 64})},
      {"Sectioned",
       WithAxes(Plain(128, 1e6), AxisAssignment::kSectioned, {16, 24, 24})},
      {"PerAxis", WithAxes(Plain(128), AxisAssignment::kPerAxis, {8, 28, 28})},
      {"PerAxisNtk",
       With(WithAxes(Plain(128), AxisAssignment::kPerAxis, {8, 28, 28}),
            NtkScaling{3})},
      {"PerAxisLongRope",
       With(WithAxes(Plain(96), AxisAssignment::kPerAxis, {16, 32}),
            LongRope(48)),
       5000},
  };
  RopeSpec thetas = WithAxes(Plain(64), AxisAssignment::kPerAxis, {10, 22});
  thetas.axes->axis_thetas = {100, 500000};
  cases.push_back({"AxisThetas", thetas});
  YarnScaling gpt_oss = Yarn(32, 4096);
  gpt_oss.truncate = false;
  cases.push_back({"GptOss", With(Plain(64, 150000), gpt_oss)});
  YarnScaling betas = Yarn(16, 8192);
  betas.beta_fast = 4;
  betas.beta_slow = 0.5;
  betas.mscale = 0.707;
  betas.mscale_all_dim = 1.5;
  cases.push_back({"YarnMscales", With(Plain(64), betas)});
  YarnScaling open = Yarn(4, 8192);
  open.beta_fast = 1e308;
  open.beta_slow = 0;
  cases.push_back({"YarnOpenEnds", With(Plain(64), open)});
  YarnScaling given = Yarn(4, 8192);
  given.attention_factor = 0.875;
  cases.push_back({"YarnAttentionFactor", With(Plain(64), given)});
  YarnScaling alone = Yarn(4, 8192);
  alone.mscale = 0.5;
  cases.push_back({"YarnMscaleAlone", With(Plain(64), alone)});
  YarnScaling equal_ends = Yarn(4, 8192);
  equal_ends.beta_fast = equal_ends.beta_slow = 2;
  equal_ends.truncate = false;
  cases.push_back({"YarnEqualEnds", With(Plain(64), equal_ends)});
  LongRopeScaling mscales = LongRope(48);
  mscales.short_mscale = 1.1;
  mscales.long_mscale = 1.25;
  cases.push_back({"LongRopeShortMscale", With(Plain(96), mscales), 4096});
  cases.push_back({"LongRopeLongMscale", With(Plain(96), mscales), 4097});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Scalings, FrequenciesTest,
                         ::testing::ValuesIn(AllScalings()),
                         [](const auto& info) { return info.param.name; });

TEST(FrequencyTest, IsTheNearestNumberForAnyBaseAndWidth) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> ln_theta(0, 20);
  std::uniform_int_distribution<int> pairs(2, 128);
  int wrong = 0;
  for (int checked = 0; checked < 100000; ++checked) {
    const int n = pairs(random);
    const int i = std::uniform_int_distribution<int>(1, n - 1)(random);
    const double theta = std::nextafter(std::exp(ln_theta(random)), HUGE_VAL);
    const auto exact =
        static_cast<double>(powq(theta, -static_cast<reference::Quad>(i) / n));
    wrong += Resolve(Plain(2 * n, theta)).inv_freq[i] != exact ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0);
}

// Published or separately computed numbers.

TEST(ScalingTest, Llama31Keeps29PairsBlends6AndScales29) {
  const RopeSpec spec = Plain(128, 5e5);
  const ResolvedRope plain = Resolve(spec);
  const ResolvedRope scaled = Resolve(With(spec, Llama3Scaling{8, 1, 4, 8192}));
  int kept = 0, divided = 0;
  for (int i = 0; i < 64; ++i) {
    kept += scaled.inv_freq[i] == plain.inv_freq[i];
    divided += scaled.inv_freq[i] == plain.inv_freq[i] / 8;
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(divided, 29);
}

TEST(ScalingTest, UntruncatedRampOfGptOssRunsFrom8To17) {
  YarnScaling yarn = Yarn(32, 4096);
  yarn.truncate = false;
  const ResolvedRope plain = Resolve(Plain(64, 150000));
  const ResolvedRope scaled = Resolve(With(Plain(64, 150000), yarn));
  // The ramp ends at 8.0928 and 17.398, which follow from the values of its
  // pairs.
  const auto ramp = [&](int i) {
    return (1 - scaled.inv_freq[i] / plain.inv_freq[i]) / (1 - 1.0 / 32);
  };
  const double slope = ramp(17) - ramp(16);
  const double low = 16 - ramp(16) / slope;
  EXPECT_NEAR(low, 8.0928, 5e-5);
  EXPECT_NEAR(low + 1 / slope, 17.398, 5e-4);
  EXPECT_EQ(ramp(8), 0);
  EXPECT_EQ(scaled.inv_freq[18], plain.inv_freq[18] / 32);
}

TEST(ScalingTest, AmplitudeOfPhi3Mini128kIs1Point1902) {
  const ResolvedRope rope = Resolve(With(Plain(96), LongRope(48)), 100000);
  EXPECT_NEAR(rope.attention_factor, 1.1902, 5e-5);
}

TEST(ScalingTest, GivenAmplitudeReplacesTheImpliedOne) {
  RopeSpec spec = With(Plain(64), Yarn(40, 4096));
  spec.attention_factor = 2.5;
  EXPECT_EQ(Resolve(spec).attention_factor, 2.5);
}

TEST(ExplicitTest, ValuesComeBackPerHeadAndAxis) {
  RopeSpec spec = Plain(4);
  spec.rope_theta.reset();
  spec.scaling = ExplicitFrequencies{{1, 2, 3, 4, 5, 6, 7, 8}, 2, 2};
  const ResolvedRope rope = Resolve(spec);
  EXPECT_THAT(rope.inv_freq, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(rope.heads, 2);
  EXPECT_EQ(rope.frequency_axes, 2);
  EXPECT_EQ(rope.axes(), 2);
  EXPECT_TRUE(rope.needs_ids());
  EXPECT_FALSE(rope.spec.rope_theta.has_value());
}

TEST(ResolveTest, CompletedSpecResolvesToItself) {
  RopeSpec spec;
  spec.pairing = Pairing::kInterleaved;
  spec.scaling = Yarn(8, 1024);
  const auto first = ResolveSpec(spec, 64, std::nullopt, MissingLength::kError);
  ASSERT_TRUE(first.ok()) << first.status();
  std::vector<std::string> fields;
  for (const Assumption& assumption : first->assumptions) {
    fields.push_back(assumption.field + "=" + assumption.value);
  }
  EXPECT_THAT(fields, ElementsAre("rotary_dim=64", "rope_theta=10000",
                                  "yarn.beta_fast=32", "yarn.beta_slow=1",
                                  "yarn.truncate=true"));
  EXPECT_EQ(first->spec.output_pairing, Pairing::kInterleaved);
  const auto second =
      ResolveSpec(first->spec, 0, std::nullopt, MissingLength::kError);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->inv_freq, first->inv_freq);
  EXPECT_EQ(second->attention_factor, first->attention_factor);
  EXPECT_THAT(second->assumptions, IsEmpty());
}

TEST(ResolveTest, AssumesTheOriginalLengthWhereAsked) {
  const auto rope = ResolveSpec(With(Plain(96), LongRope(48)), 0, std::nullopt,
                                MissingLength::kAssumeOriginal);
  ASSERT_TRUE(rope.ok()) << rope.status();
  ASSERT_THAT(rope->assumptions, SizeIs(1));
  EXPECT_EQ(rope->assumptions[0].field, "sequence_length");
  EXPECT_EQ(rope->assumptions[0].value, "4096");
  EXPECT_EQ(rope->inv_freq[1],
            Resolve(With(Plain(96), LongRope(48)), 4096).inv_freq[1]);
}

TEST(ResolveTest, WarnsOfFactorsBelowOne) {
  const ResolvedRope rope = Resolve(With(Plain(8), LinearScaling{0.5}));
  ASSERT_THAT(rope.warnings, SizeIs(1));
  EXPECT_THAT(rope.warnings[0], HasSubstr("linear.factor is 0.5"));
  EXPECT_THAT(Resolve(With(Plain(8), LinearScaling{2})).warnings, IsEmpty());
}

TEST(ResolveTest, NopeHasNoPairs) {
  RopeSpec spec;
  spec.nope = true;
  const auto rope = ResolveSpec(spec, 128, std::nullopt, MissingLength::kError);
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->pairs(), 0);
  EXPECT_THAT(rope->inv_freq, IsEmpty());
}

}  // namespace
}  // namespace posenc::core
