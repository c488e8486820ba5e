#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/model/compare.h"
#include "core/model/content_hash.h"

namespace posenc::core {
namespace {

using testing::Contains;
using testing::HasSubstr;

RopeSpec Plain() {
  return {.rotary_dim = 64, .rope_theta = 1e4, .pairing = Pairing::kHalfSplit};
}

ResolvedRope Resolved(const RopeSpec& spec) {
  auto rope = ResolveSpec(spec, 64, 4096, MissingLength::kError);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() ? *rope : ResolvedRope();
}

TEST(CompareTest, SameRotationIsEqualHoweverSpelled) {
  RopeSpec one = Plain();
  one.scaling = LinearScaling{1};
  const RopeDifference difference =
      CompareRopes(Resolved(Plain()), Resolved(one));
  EXPECT_TRUE(difference.equal);
  EXPECT_EQ(difference.max_relative_frequency_difference, 0);
  EXPECT_EQ(difference.amplitude_ratio, 1);
  EXPECT_EQ(difference.first_diverging_position, -1);
  EXPECT_THAT(difference.explanations, testing::IsEmpty());
}

TEST(CompareTest, CountsFromTheSmallestDivergingPosition) {
  RopeSpec halved = Plain();
  halved.scaling = LinearScaling{2};
  // Pair 0 turns by 1 and by 1/2 per position: 0.5 rad apart at position 1.
  RopeDifference difference = CompareRopes(Resolved(Plain()), Resolved(halved));
  EXPECT_FALSE(difference.equal);
  EXPECT_EQ(difference.max_relative_frequency_difference, 0.5);
  EXPECT_EQ(difference.first_diverging_position, 1);

  RopeSpec a = {.rotary_dim = 2, .pairing = Pairing::kHalfSplit}, b = a;
  a.scaling = ExplicitFrequencies{.values = {0.25}};
  b.scaling = ExplicitFrequencies{.values = {0.25 + 0x1p-10}};
  // 0.01 * 2^10 = 10.24: the first whole position beyond it is 11.
  difference = CompareRopes(Resolved(a), Resolved(b));
  EXPECT_EQ(difference.first_diverging_position, 11);

  b.scaling = ExplicitFrequencies{.values = {0.25 + 0x1p-40}};
  // Would be 0.01 * 2^40, beyond every position.
  difference = CompareRopes(Resolved(a), Resolved(b));
  EXPECT_FALSE(difference.equal);
  EXPECT_EQ(difference.first_diverging_position, -1);
}

TEST(CompareTest, NamesTheWorstPair) {
  RopeSpec a = {.rotary_dim = 6, .pairing = Pairing::kHalfSplit}, b = a;
  a.scaling = ExplicitFrequencies{.values = {1, 0.5, 0.25}};
  b.scaling = ExplicitFrequencies{.values = {1, 0.25, 0.2}};
  const RopeDifference difference = CompareRopes(Resolved(a), Resolved(b));
  EXPECT_EQ(difference.worst_pair, 1);
  EXPECT_EQ(difference.max_relative_frequency_difference, 0.5);
}

TEST(CompareTest, ExplainsInWords) {
  RopeSpec other = Plain();
  other.pairing = Pairing::kInterleaved;
  other.rope_theta = 5e5;
  other.scaling =
      YarnScaling{.factor = 4, .original_max_position_embeddings = 4096};
  const RopeDifference difference =
      CompareRopes(Resolved(Plain()), Resolved(other));
  EXPECT_FALSE(difference.equal);
  // g(4, 1) of the YaRN paper.
  EXPECT_DOUBLE_EQ(difference.amplitude_ratio, 0.1 * std::log(4) + 1);
  EXPECT_THAT(difference.explanations,
              Contains(HasSubstr("pairing: half-split against interleaved")));
  EXPECT_THAT(difference.explanations, Contains(HasSubstr("base")));
  EXPECT_THAT(difference.explanations,
              Contains(HasSubstr("scaling: no scaling against yarn by 4")));
  EXPECT_THAT(difference.explanations, Contains(HasSubstr("amplitude")));
}

TEST(CompareTest, OtherWidthsAreNotCompared) {
  RopeSpec narrow = Plain();
  narrow.rotary_dim = 32;
  const RopeDifference difference =
      CompareRopes(Resolved(Plain()), Resolved(narrow));
  EXPECT_FALSE(difference.equal);
  EXPECT_THAT(difference.explanations,
              Contains(HasSubstr("rotated channels: 64 against 32")));
}

TEST(CompareTest, TellsALayerWithoutRope) {
  const ResolvedRope nope = Resolved({.nope = true});
  EXPECT_TRUE(CompareRopes(nope, nope).equal);
  EXPECT_FALSE(CompareRopes(nope, Resolved(Plain())).equal);
  EXPECT_FALSE(CompareRopes(Resolved(Plain()), nope).equal);
}

TEST(ContentHashTest, IsTheSameHoweverSpelled) {
  const ResolvedRope plain = Resolved(Plain());
  RopeSpec linear = Plain();
  linear.scaling = LinearScaling{1};
  RopeSpec given = Plain();
  given.rope_theta.reset();
  given.scaling = ExplicitFrequencies{.values = plain.inv_freq};
  RopeSpec output = Plain();
  output.output_pairing = Pairing::kHalfSplit;
  RopeSpec trailing = Plain();  // the whole head
  trailing.slice = RotarySlice::kTrailing;
  const std::string hash = ContentHash(plain);
  EXPECT_EQ(hash.size(), 64u);
  EXPECT_THAT(hash, testing::MatchesRegex("[0-9a-f]*"));
  for (const RopeSpec& spec : {linear, given, output, trailing}) {
    EXPECT_EQ(ContentHash(Resolved(spec)), hash);
  }
}

TEST(ContentHashTest, DiffersWhereTheRotationDoes) {
  const std::string hash = ContentHash(Resolved(Plain()));
  std::vector<RopeSpec> others(8, Plain());
  others[0].pairing = Pairing::kInterleaved;
  others[1].output_pairing = Pairing::kInterleaved;
  others[2].amplitude = 2;
  others[3].reverse = true;
  others[4].angle_precision = AnglePrecision::kFloat32;
  others[5].rope_theta = 10001;
  others[6].xpos = XPos{};
  others[7].rotary_dim = 32;
  for (std::size_t i = 0; i < others.size(); ++i) {
    EXPECT_NE(ContentHash(Resolved(others[i])), hash) << "variant " << i;
  }
  EXPECT_NE(ContentHash(Resolved({.nope = true})), hash);
}

TEST(ContentHashTest, DiffersWherePairsFollowOtherAxes) {
  RopeSpec a = Plain(), b = Plain();
  a.axes = RotaryAxes{.assignment = AxisAssignment::kSectioned,
                      .sections = {8, 12, 12}};
  b.axes = RotaryAxes{.assignment = AxisAssignment::kSectioned,
                      .sections = {12, 8, 12}};
  EXPECT_NE(ContentHash(Resolved(a)), ContentHash(Resolved(b)));
  EXPECT_NE(ContentHash(Resolved(a)), ContentHash(Resolved(Plain())));
}

}  // namespace
}  // namespace posenc::core
