// Profiles against each other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/interpretation/compare.h"
#include "core/interpretation/source.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/model.h"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;

// Returns a Llama with heads of 64 channels and base 10000.
json Llama(const json& scaling) {
  json config = {{"model_type", "llama"},
                 {"hidden_size", 512},
                 {"num_attention_heads", 8},
                 {"max_position_embeddings", 16384},
                 {"rope_theta", 10000.0}};
  if (!scaling.is_null()) config["rope_scaling"] = scaling;
  return config;
}

json Yarn(const json& more) {
  json scaling = {{"rope_type", "yarn"},
                  {"factor", 4.0},
                  {"original_max_position_embeddings", 4096}};
  scaling.update(more);
  return scaling;
}

json DeepseekV3(const json& scaling) {
  json config = {
      {"model_type", "deepseek_v3"}, {"hidden_size", 7168},
      {"num_attention_heads", 128},  {"qk_rope_head_dim", 64},
      {"qk_nope_head_dim", 128},     {"max_position_embeddings", 163840},
      {"rope_theta", 10000.0}};
  if (!scaling.is_null()) config["rope_scaling"] = scaling;
  return config;
}

TEST(TrainedLengthTest, OfASpecIsThatOfItsScaling) {
  const RopeSpec spec = {.rotary_dim = 64,
                         .pairing = Pairing::kHalfSplit,
                         .scaling = DynamicNtkScaling{
                             .factor = 2, .max_position_embeddings = 2048}};
  const auto rope = ResolveSpec(spec, 64, 10, MissingLength::kError);
  ASSERT_TRUE(rope.ok());
  EXPECT_EQ(rope->original_max_position_embeddings, 2048);
}

// Compares every pair of profiles: they are equal exactly if there is no
// explanation, and exchanging them gives the same numbers.
TEST(CompareProfilesTest, ExplainsEveryPair) {
  const json configs[] = {
      Llama(Yarn({{"attn_factor", 0.5}, {"mscale", 0.7}})),
      DeepseekV3(
          Yarn({{"factor", 40.0}, {"mscale", 1.0}, {"mscale_all_dim", 1.0}}))};
  for (const json& config : configs) {
    for (const Profile one : kEveryProfile) {
      for (const Profile other : kEveryProfile) {
        const auto a = TryRead(config, one), b = TryRead(config, other);
        if (!a.ok() || !b.ok()) continue;
        const RopeDifference there = CompareRopes(*a, *b);
        const RopeDifference back = CompareRopes(*b, *a);
        EXPECT_EQ(there.equal, there.explanations.empty());
        EXPECT_EQ(there.equal, back.equal);
        EXPECT_EQ(there.first_diverging_position,
                  back.first_diverging_position);
        EXPECT_EQ(there.max_relative_frequency_difference,
                  back.max_relative_frequency_difference);
        EXPECT_TRUE(there.equal || one != other);
      }
    }
  }
  // Known differences: truncation, amplitude, pairing of the output.
  EXPECT_THAT(CompareRopes(Read(configs[0], Profile::kGptOss),
                           Read(configs[0], Profile::kMlx))
                  .explanations,
              Contains(HasSubstr("not truncated")));
  EXPECT_THAT(CompareRopes(Read(configs[0], Profile::kHf),
                           Read(configs[0], Profile::kMlx))
                  .explanations,
              Contains(HasSubstr("amplitude: ")));
  for (const Profile other : {Profile::kVllm, Profile::kLlamaCpp,
                              Profile::kDeepseek, Profile::kMlx}) {
    EXPECT_THAT(
        CompareRopes(Read(configs[1], Profile::kHf), Read(configs[1], other))
            .explanations,
        Contains(HasSubstr("pairing: interleaved in and half-split "
                           "out against interleaved")));
  }
}

}  // namespace
}  // namespace posenc::core::interpretation
