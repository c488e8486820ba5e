// Checks of keys whose values are not needed (core/model/known_keys.h).

#include "core/model/known_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(KnownKeysTest, WrongTypesAreErrorsWhereverTheyStand) {
  const json wrong[] = {{{"sliding_window", json::array()}},
                        {{"layer_types", {1, 2}}},
                        {{"layers_block_type", "mamba"}},
                        {{"position_embedding_type", 7}},
                        {{"per_layer_config", -4096}},
                        {{"per_layer_config", {{"a", json::object()}}}},
                        {{"rope_scaling", 192}},
                        {{"max_position_embeddings", true}}};
  for (const json& more : wrong) {
    for (const json& config :
         {SmallLlama(more), [&more] {
            json root = {{"model_type", "llava"},
                         {"text_config", SmallLlama(json::object())}};
            root.update(more);
            return root;
          }()}) {
      const absl::Status status = TryRead(config, Profile::kHf).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
          << config.dump();
      const auto details = GetErrorDetails(status);
      ASSERT_TRUE(details.has_value()) << config.dump();
      EXPECT_EQ(details->field, "config_json");
      EXPECT_THAT(std::string(status.message()), HasSubstr(more.begin().key()));
    }
  }
}

TEST(KnownKeysTest, KeysWithoutAPartInPositionsAreNotLookedAt) {
  for (const json& more :
       {json{{"vocab_size", "many"}}, json{{"num_key_value_heads", 3}},
        json{{"use_cache", 7}}, json{{"dtype", {1}}}}) {
    EXPECT_TRUE(Read(SmallLlama(more), Profile::kHf).warnings.empty()) << more;
  }
}

TEST(KnownKeysTest, BasesAreNeverNull) {
  EXPECT_TRUE(Warned(Read({{"model_type", "modernbert"},
                           {"hidden_size", 768},
                           {"num_attention_heads", 12},
                           {"global_rope_theta", 160000.0},
                           {"local_rope_theta", nullptr},
                           {"layer_types", json::array({"full_attention"})},
                           {"num_hidden_layers", 1}},
                          Profile::kHf),
                     "local_rope_theta is null"));
}

TEST(KnownKeysTest, ANullWindowIsNoneWhereLayersAreListed) {
  const json listed = {
      {"model_type", "exaone4"},          {"hidden_size", 2048},
      {"num_attention_heads", 32},        {"num_hidden_layers", 1},
      {"max_position_embeddings", 65536}, {"sliding_window", nullptr},
      {"layer_types", {"full_attention"}}};
  EXPECT_TRUE(Read(listed, Profile::kHf).warnings.empty());
}

TEST(KnownKeysTest, HeadsThatDoNotFitAreSaid) {
  EXPECT_TRUE(Warned(Read(SmallLlama({{"hidden_size", 516}}), Profile::kHf),
                     "num_attention_heads 8 does not divide it"));
}

TEST(KnownKeysTest, ListsOfLayersThatDoNotFitAreSaid) {
  EXPECT_TRUE(Warned(Read(SmallLlama({{"num_hidden_layers", 2},
                                      {"layer_types", json::array()}}),
                          Profile::kHf),
                     "layer_types has 0 elements, and num_hidden_layers is 2"));
  // The class's own number, if the file has none.
  EXPECT_TRUE(Warned(
      Read(SmallLlama({{"layer_types", {"full_attention"}}}), Profile::kHf),
      "layer_types has 1 elements, and num_hidden_layers is 32"));
}

TEST(KnownKeysTest, AShareOfNullStopsGptNeox) {
  EXPECT_TRUE(Warned(Read({{"model_type", "gpt_neox"},
                           {"hidden_size", 512},
                           {"num_attention_heads", 8},
                           {"rotary_pct", nullptr}},
                          Profile::kHf),
                     "rotary_pct is null, with which transformers' class of "
                     "model_type gpt_neox fails"));
}

TEST(KnownKeysTest, KeysAtWhichAClassFailsAreSaid) {
  json config = {{"model_type", "qwen3_5_text"},
                 {"hidden_size", 4096},
                 {"full_attention_interval", 0}};
  EXPECT_TRUE(Warned(Read(config, Profile::kHf),
                     "full_attention_interval is 0, by which transformers' "
                     "class divides, and fails"));
  config["layer_types"] = json::array({"full_attention"});
  config["num_hidden_layers"] = 1;
  EXPECT_FALSE(Warned(Read(config, Profile::kHf), "full_attention_interval"));
  RopeSource source;
  source.source = ConfigJson{
      R"({"model_type":"exaone4","hidden_size":5120,"num_attention_heads":40,)"
      R"("rope_theta":1000000,"sliding_window_pattern":"LLLG",)"
      R"("sliding_window":4096})"};
  source.layer_type = "sliding_attention";
  const auto exaone = ResolveSource(source, 0, MissingLength::kAssumeOriginal);
  ASSERT_TRUE(exaone.ok()) << exaone.status();
  EXPECT_TRUE(Warned(*exaone, "is \"LLLG\" without layer_types"));
  EXPECT_TRUE(Warned(Read({{"model_type", "bamba"},
                           {"hidden_size", 4096},
                           {"layer_types", nullptr}},
                          Profile::kHf),
                     "layer_types is given, which transformers' class of "
                     "model_type bamba computes"));
  EXPECT_TRUE(Warned(Read({{"model_type", "falcon"},
                           {"hidden_size", 4544},
                           {"num_attention_heads", 71},
                           {"n_embed", 2272}},
                          Profile::kHf),
                     "n_embed is 2272, which transformers' class of model_type "
                     "falcon takes for hidden_size"));
}

// Past float32 the powers of a base are infinite.
TEST(KnownKeysTest, ABasePastFloat32IsSaid) {
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 4096}};
  EXPECT_TRUE(Warned(Read(SmallLlama({{"rope_theta", 1e200},
                                      {"rope_scaling", yarn},
                                      {"max_position_embeddings", 16384}}),
                          Profile::kHf),
                     "rope_theta is 1e+200, more than float32 holds"));
}

TEST(KnownKeysTest, TheLongZambasLengthIsItsClasss) {
  json zamba = {{"model_type", "zamba2"},
                {"hidden_size", 2560},
                {"num_attention_heads", 32},
                {"max_position_embeddings", 4096},
                {"use_long_context", true},
                {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}};
  const auto length = [&zamba] {
    const ResolvedRope rope = Read(zamba, Profile::kHf, 32768);
    const auto* scaling = std::get_if<DynamicNtkScaling>(&rope.spec.scaling);
    return scaling == nullptr ? 0 : scaling->max_position_embeddings;
  };
  EXPECT_EQ(length(), 16384);
  EXPECT_TRUE(Warned(Read(zamba, Profile::kHf, 32768),
                     "max_position_embeddings is 4096, and use_long_context is "
                     "true"));
  zamba["use_long_context"] = false;
  EXPECT_EQ(length(), 4096);
}

TEST(KnownKeysTest, ListsOfLayersThatTheClassTakesOtherwiseAreSaid) {
  EXPECT_TRUE(Warned(
      Read(SmallLlama({{"layer_rope_theta", {0, 0}}, {"rope_theta", 1e4}}),
           Profile::kHf),
      "layer_rope_theta is [0,0], which transformers' class"));
}

TEST(KnownKeysTest, ALengthThatAClassDoesNotFillInIsSaid) {
  const json config = {
      {"model_type", "step3p5"},
      {"hidden_size", 4096},
      {"num_attention_heads", 64},
      {"max_position_embeddings", 128000},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}};
  RopeSource source;
  source.source = ConfigJson{config.dump()};
  source.layer_type = "full_attention";
  const auto rope = ResolveSource(source, 0, MissingLength::kAssumeOriginal);
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_TRUE(Warned(*rope,
                     "rope_scaling.original_max_position_embeddings is absent, "
                     "which transformers' class of model_type step3p5 needs"));
}

TEST(KnownKeysTest, AnOddHeadIsSaidBesideWhatTransformersMakesOfIt) {
  json config =
      SmallLlama({{"hidden_size", 2048}, {"num_attention_heads", 28}});
  EXPECT_THAT(std::string(TryRead(config, Profile::kHf).status().message()),
              HasSubstr("transformers makes 37 frequencies of them"));
}

TEST(KnownKeysTest, SomeKeysSayThatAModelRotates) {
  absl::Status status;
  for (const json& config :
       {json{{"rope_theta", 1e4}}, json{{"rotary_dim", 64}},
        json{{"position_embedding_type", "rotary"}},
        json{{"attn_config", {{"rope_theta", 1e4}}}}}) {
    EXPECT_TRUE(HasRotaryKey(JsonObject(&config, "", &status)))
        << config.dump();
  }
  const json none = {{"hidden_size", 64},
                     {"position_embedding_type", "absolute"}};
  EXPECT_FALSE(HasRotaryKey(JsonObject(&none, "", &status)));
}

}  // namespace
}  // namespace posenc::core
