// Differences of two encodings, in numbers and in words; and the hash of an
// encoding, against digests from Python.

#include "core/interpretation/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/interpretation/content_hash.h"

namespace posenc::core::interpretation {
namespace {

using testing::AllOf;
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
  EXPECT_EQ(difference.attention_factor_ratio, 1);
  EXPECT_EQ(difference.first_diverging_position, -1);
  EXPECT_THAT(difference.explanations, testing::IsEmpty());
}

TEST(CompareTest, CountsFromTheSmallestDivergingPosition) {
  RopeSpec halved = Plain();
  halved.scaling = LinearScaling{2};
  // Pair 0 rotates by 1 and by 1/2 per position: 0.5 rad apart at position 1.
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
  // The first such position, 2^40 * 0.01, is beyond all positions.
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
  EXPECT_DOUBLE_EQ(difference.attention_factor_ratio, 0.1 * std::log(4) + 1);
  EXPECT_THAT(difference.explanations,
              Contains(HasSubstr("pairing: half-split against interleaved")));
  EXPECT_THAT(difference.explanations, Contains(HasSubstr("base")));
  EXPECT_THAT(difference.explanations,
              Contains(HasSubstr("scaling: no scaling against yarn by 4")));
  EXPECT_THAT(difference.explanations, Contains(HasSubstr("amplitude")));
}

TEST(CompareTest, NamesEveryScaling) {
  const std::vector<std::pair<RopeSpec, std::string>> named = [] {
    std::vector<std::pair<RopeSpec, std::string>> specs;
    const auto add = [&specs](const auto& scaling, const std::string& text) {
      specs.emplace_back(Plain(), text);
      specs.back().first.scaling = scaling;
    };
    add(NtkScaling{8}, "ntk by 8");
    add(DynamicNtkScaling{4, 2048}, "dynamic ntk by 4 beyond 2048");
    LongRopeScaling longrope;
    longrope.short_factor.assign(32, 1);
    longrope.long_factor.assign(32, 2);
    longrope.original_max_position_embeddings = 1024;
    longrope.factor = 4;
    add(longrope, "longrope from 1024");
    add(Llama3Scaling{8, 1, 4, 8192}, "llama3 by 8 from 8192, ramp 1 to 4");
    add(ProportionalScaling{2, 8}, "proportional by 2, 8 pairs turning");
    return specs;
  }();
  RopeSpec linear = Plain();
  linear.scaling = LinearScaling{3};
  for (const auto& [spec, text] : named) {
    EXPECT_THAT(CompareRopes(Resolved(linear), Resolved(spec)).explanations,
                Contains(AllOf(HasSubstr("linear by 3"), HasSubstr(text))));
  }
}

TEST(CompareTest, TellsPrecisionAndDecay) {
  RopeSpec rounded = Plain(), decaying = Plain(), elsewhere = Plain();
  rounded.angle_precision = AnglePrecision::kFloat32;
  decaying.xpos = XPos{};
  elsewhere.xpos = XPos{.center = 2048};
  const auto explanations = [](const RopeSpec& a, const RopeSpec& b) {
    return CompareRopes(Resolved(a), Resolved(b)).explanations;
  };
  EXPECT_THAT(explanations(Plain(), rounded),
              Contains(HasSubstr("one rounds angles to float32")));
  EXPECT_THAT(explanations(Plain(), decaying),
              Contains(HasSubstr("xPos decay differs")));
  EXPECT_THAT(explanations(decaying, elsewhere),
              Contains(HasSubstr("xPos decay differs")));
  EXPECT_THAT(explanations(decaying, decaying), testing::IsEmpty());
}

TEST(CompareTest, ReportsWhereTheAnglesDiffer) {
  RopeSpec halved = Plain();
  halved.scaling = LinearScaling{2};
  EXPECT_THAT(
      CompareRopes(Resolved(Plain()), Resolved(halved)).explanations,
      Contains("frequencies differ by up to 50 %, most at pair 0; an angle "
               "differs by more than 0.01 rad from position 1 on"));
}

TEST(CompareTest, GivesTheEndsOfYarnsRamp) {
  RopeSpec whole = {
      .rotary_dim = 64, .rope_theta = 150000, .pairing = Pairing::kHalfSplit};
  whole.scaling =
      YarnScaling{.factor = 32, .original_max_position_embeddings = 4096};
  RopeSpec exact = whole;
  std::get<YarnScaling>(exact.scaling).truncate = false;
  EXPECT_THAT(CompareRopes(Resolved(whole), Resolved(exact)).explanations,
              Contains(testing::AllOf(HasSubstr("turns: pairs 8 to 18 against"),
                                      HasSubstr("pairs 8.09278 to 17.398"))));
}

TEST(CompareTest, TellsFactorsOnQueriesAndScores) {
  const ResolvedRope a = Resolved(Plain());
  ResolvedRope b = a;
  b.query_scale = QueryScale{0.1, 8192, 1};
  b.softmax_scale_multiplier = 1.5;
  const RopeDifference difference = CompareRopes(a, b);
  EXPECT_FALSE(difference.equal);
  EXPECT_THAT(difference.explanations,
              Contains(HasSubstr("none against 1 + 0.1 ln(1 + floor((p + 1) / "
                                 "8192))")));
  EXPECT_THAT(difference.explanations,
              Contains("softmax scale multiplier: 1 against 1.5"));
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

TEST(CompareTest, RefusesTheScoresOfTooManyFrequencies) {
  const ResolvedRope rope = Resolved(Plain());
  ResolvedRope many = rope;
  many.inv_freq.resize(kMaxComparedFrequencies + 1, 0.5);
  RopeDifference difference;
  EXPECT_EQ(CompareScores(rope, many, 1, nullptr, &difference).message(),
            "compare_with: beside 65537 frequencies; at most 65536 are "
            "compared");
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

// Digests from Python's hashlib over struct.pack of the documented format.
TEST(ContentHashTest, IsTheDocumentedDigest) {
  // pack("<9qd4q2dq", 1,0,4,1,1,1,0,0,1, 1.0, 0,0,1,2, 1.0,0.01, 0)
  RopeSpec spec = {.rotary_dim = 4, .pairing = Pairing::kHalfSplit};
  EXPECT_EQ(ContentHash(*ResolveSpec(spec, 4, {}, MissingLength::kError)),
            "4bfd25506e82444c5c6a5c1893d631506f45e1abbd58b4bd2b6d3ef19b54a037");
  // pack("<9qd4q2d3q", 1,0,4,1,1,1,0,0,1, 1.0, 0,0,1,2, 1.0,0.25, 2,0,1)
  spec.scaling = ExplicitFrequencies{.values = {1, 0.25}};
  spec.axes =
      RotaryAxes{.assignment = AxisAssignment::kSectioned, .sections = {1, 1}};
  EXPECT_EQ(ContentHash(*ResolveSpec(spec, 4, {}, MissingLength::kError)),
            "ecc12d964f4677fe84962d88cd35941b23a4718b1efb452c12daf8c2e537153a");
  // pack("<9qdq3d3q2dq", 1,0,4,2,2,1,0,1,2, 1.5, 1,512.0,0.4,3.0, 0,1,2,
  //      1.0,0.25, 0)
  spec = {.rotary_dim = 4,
          .slice = RotarySlice::kTrailing,
          .pairing = Pairing::kInterleaved,
          .output_pairing = Pairing::kHalfSplit,
          .attention_factor = 1.5,
          .reverse = true,
          .angle_precision = AnglePrecision::kFloat32,
          .xpos = XPos{.center = 3},
          .scaling = ExplicitFrequencies{.values = {1, 0.25}}};
  EXPECT_EQ(ContentHash(*ResolveSpec(spec, 8, {}, MissingLength::kError)),
            "d44e1fe5be8e7853aef5ea45be4d580e5595ea22ab82c8c97b289b42b59b72ad");
  // pack("<2q", 1, 1)
  EXPECT_EQ(ContentHash(Resolved({.nope = true})),
            "814dd7b9784d57c15b9c2972e9b4fd6cf7e164f8162a934bdb2452a413dab1f7");
}

TEST(ContentHashTest, DiffersWhereTheRotationDoes) {
  const std::string hash = ContentHash(Resolved(Plain()));
  std::vector<RopeSpec> others(8, Plain());
  others[0].pairing = Pairing::kInterleaved;
  others[1].output_pairing = Pairing::kInterleaved;
  others[2].attention_factor = 2;
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
}  // namespace posenc::core::interpretation
