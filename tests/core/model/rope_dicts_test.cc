// Which dict of rotary parameters a layer gets (core/model/rope_dicts.h).

#include "core/model/rope_dicts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;

json Config(const std::string& model_type, const json& more) {
  json config = {{"model_type", model_type}, {"hidden_size", 512},
                 {"num_attention_heads", 8}, {"head_dim", 64},
                 {"num_hidden_layers", 2},   {"max_position_embeddings", 8192}};
  config.update(more);
  return config;
}

// Of a layer's type.
ResolvedRope OfType(const json& config, const std::string& type) {
  RopeSource source;
  source.source = ConfigJson{config.dump()};
  source.layer_type = type;
  const auto rope = ResolveSource(source, 0, MissingLength::kAssumeOriginal);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() ? *rope : ResolvedRope();
}

TEST(RopeDictsTest, RopeScalingReplacesRopeParametersAsAWhole) {
  const ResolvedRope rope = Read(
      Config(
          "llama",
          {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}},
           {"rope_parameters",
            {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 5e5}}}}),
      Profile::kHf);
  ExpectSame(rope.inv_freq[16], std::pow(1e4L, -0.5L) / 2);
  EXPECT_TRUE(Warned(rope, "they differ"));
}

TEST(RopeDictsTest, AnEmptyRopeScalingReplacesNothing) {
  ExpectSame(Read(Config("llama", {{"rope_scaling", json::object()},
                                   {"rope_parameters", {{"rope_theta", 5e5}}}}),
                  Profile::kHf)
                 .inv_freq[16],
             std::pow(5e5L, -0.5L));
}

TEST(RopeDictsTest, AMissingEntryIsSaid) {
  const json config = Config(
      "gemma4_text", {{"layer_types", {"full_attention", "sliding_attention"}},
                      {"rope_parameters",
                       {{"full_attention",
                         {{"rope_type", "default"}, {"rope_theta", 1e6}}}}}});
  EXPECT_TRUE(Warned(OfType(config, "full_attention"),
                     "rope_parameters.sliding_attention is absent, and the "
                     "class of model_type gemma4 needs an entry"));
}

TEST(RopeDictsTest, AnEntryWithoutItsBaseIsSaid) {
  const json config = Config(
      "laguna",
      {{"layer_types", {"full_attention"}},
       {"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}});
  EXPECT_TRUE(Warned(OfType(config, "full_attention"),
                     "rope_parameters.full_attention.rope_theta is absent"));
}

TEST(RopeDictsTest, EntriesOfNoTypeAreSaid) {
  const json config =
      Config("modernbert", {{"rope_parameters",
                             {{"full_attention", {{"rope_theta", 1e5}}},
                              {"linear_attention", json::object()}}}});
  EXPECT_TRUE(Warned(OfType(config, "full_attention"),
                     "rope_parameters.linear_attention is {}; the class of "
                     "model_type modernbert takes dicts"));
}

TEST(RopeDictsTest, ADictOfNullsIsNested) {
  const ResolvedRope rope = OfType(
      Config("llama", {{"rope_parameters", {{"full_attention", nullptr}}}}),
      "full_attention");
  EXPECT_TRUE(rope.spec.nope);
  EXPECT_TRUE(Warned(rope, "has entries for types of layers"));
}

TEST(RopeDictsTest, ANullThatAClassTakesForItsDictIsSaid) {
  EXPECT_TRUE(Warned(
      OfType(Config("mellum", {{"rope_scaling", nullptr}}), "full_attention"),
      "rope_scaling is null, which transformers' class of model_type mellum "
      "takes in the place of its own dict, and fails"));
  EXPECT_TRUE(Warned(
      OfType(Config("cohere2_moe", {{"rope_parameters", json::object()}}),
             "sliding_attention"),
      "rope_parameters is {}, which transformers' class"));
  EXPECT_FALSE(
      Warned(Read(Config("llama", {{"rope_scaling", nullptr}}), Profile::kHf),
             "in the place"));
}

TEST(RopeDictsTest, DeepseekV4TakesNeitherEntryBesideANull) {
  const json dict = {
      {"main", nullptr},
      {"compress", {{"rope_type", "default"}, {"rope_theta", 5e5}}}};
  EXPECT_TRUE(
      Warned(OfType(Config("deepseek_v4", {{"rope_parameters", dict}}), "main"),
             "rope_parameters.main is null: transformers' class of model_type "
             "deepseek_v4 then takes neither entry"));
}

// Its scaling is not read, and neither is the length in it.
TEST(RopeDictsTest, AnUnreadDictHasNoLength) {
  const json dict = {{"factor", 2.0}, {"original_max_position_embeddings", 77}};
  EXPECT_EQ(OfType(Config("cohere2_moe", {{"rope_scaling", dict}}),
                   "sliding_attention")
                .original_max_position_embeddings,
            8192);
}

TEST(RopeDictsTest, FullLayersHaveNoWidthOfTheirOwnBesideNull) {
  const json config =
      Config("embedding_gemma2_text", {{"per_layer_config", nullptr}});
  EXPECT_EQ(OfType(config, "full_attention").inv_freq.size(), 32u);
}

TEST(RopeDictsTest, AClassMayTakeNoScaling) {
  const ResolvedRope rope = Read(
      Config("gptj",
             {{"rotary_dim", 64},
              {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}),
      Profile::kHf);
  EXPECT_EQ(rope.inv_freq[0], 1);
  EXPECT_TRUE(Warned(rope, "does not scale"));
}

}  // namespace
}  // namespace posenc::core
