// Configurations in the formats of the reference implementations: Mistral's
// params.json, gpt-oss's and Step's own config.json.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "core/model/source.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(GptOssConfigTest, ReadsItsOwnConfig) {
  const json own = GptOssOwn(json::object());
  const json published = {{"model_type", "gpt_oss"},
                          {"head_dim", 64},
                          {"max_position_embeddings", 131072},
                          {"rope_theta", 150000},
                          {"rope_scaling",
                           {{"rope_type", "yarn"},
                            {"factor", 32.0},
                            {"beta_fast", 32.0},
                            {"beta_slow", 1.0},
                            {"truncate", false},
                            {"original_max_position_embeddings", 4096}}}};
  const ResolvedRope a = Read(own, Profile::kGptOss);
  EXPECT_EQ(a.inv_freq, Read(published, Profile::kGptOss).inv_freq);
  EXPECT_EQ(a.inv_freq, Read(published, Profile::kHf).inv_freq);
  EXPECT_EQ(a.inv_freq, Read(own, Profile::kHf).inv_freq);
  EXPECT_EQ(a.original_max_position_embeddings, 4096);
  ExpectSame(a.attention_factor, 0.1L * std::log(32.0L) + 1);
}

// Published params.json of Mistral models, cut down.
json MistralParams(const json& more) {
  json params = {
      {"dim", 4096},         {"n_layers", 34},   {"head_dim", 128},
      {"hidden_dim", 14336}, {"n_heads", 32},    {"n_kv_heads", 8},
      {"rope_theta", 1e6},   {"norm_eps", 1e-5}, {"vocab_size", 131072}};
  params.update(more);
  return params;
}

TEST(MistralParamsTest, ReadsParams) {
  const json params = MistralParams(
      {{"yarn",
        {{"original_max_position_embeddings", 16384},
         {"factor", 16},
         {"apply_scale", false},
         {"beta", 32},
         {"alpha", 1}}},
       {"llama_4_scaling",
        {{"original_max_position_embeddings", 16384}, {"beta", 0.1}}}});
  const ResolvedRope rope = Read(params, Profile::kMistral);
  EXPECT_EQ(rope.head_dim, 128);
  EXPECT_EQ(rope.spec.pairing, Pairing::kInterleaved);
  EXPECT_EQ(rope.attention_factor, 1);
  EXPECT_EQ(rope.original_max_position_embeddings, 16384);
  ASSERT_TRUE(rope.query_scale.has_value());
  EXPECT_EQ(rope.query_scale->beta, 0.1);
  EXPECT_EQ(rope.query_scale->floor_scale, 16384);
  EXPECT_EQ(rope.query_scale->offset, 0);
  EXPECT_THAT(rope.warnings, testing::IsEmpty());
  // The same model as published for transformers.
  const json published = {{"model_type", "ministral3"},
                          {"hidden_size", 4096},
                          {"num_attention_heads", 32},
                          {"head_dim", 128},
                          {"max_position_embeddings", 262144},
                          {"rope_parameters",
                           {{"rope_type", "yarn"},
                            {"rope_theta", 1e6},
                            {"factor", 16.0},
                            {"original_max_position_embeddings", 16384},
                            {"beta_fast", 32.0},
                            {"beta_slow", 1.0},
                            {"mscale", 1.0},
                            {"mscale_all_dim", 1.0}}}};
  for (const Profile profile : kEveryProfile) {
    EXPECT_EQ(Read(params, profile).inv_freq, rope.inv_freq);
  }
  EXPECT_EQ(Read(published, Profile::kHf).inv_freq, rope.inv_freq);
  EXPECT_EQ(Read(published, Profile::kHf).attention_factor, 1);
}

TEST(MistralParamsTest, ScalesTheAmplitudeUnlessToldNot) {
  json yarn = {{"original_max_position_embeddings", 8192}, {"factor", 4}};
  const ResolvedRope rope =
      Read(MistralParams({{"yarn", yarn}}), Profile::kMistral);
  ExpectSame(rope.attention_factor, 0.1L * std::log(4.0L) + 1);
  EXPECT_TRUE(Assumed(rope, "yarn.apply_scale", "true"));
  EXPECT_TRUE(Assumed(rope, "yarn.beta", "32"));
  yarn["turns"] = 3;
  EXPECT_TRUE(Warned(Read(MistralParams({{"yarn", yarn}}), Profile::kMistral),
                     "yarn.turns is not read"));
}

TEST(MistralParamsTest, LatentAttentionScalesTheScores) {
  const ResolvedRope rope =
      Read(MistralParams({{"qk_rope_head_dim", 64},
                          {"qk_nope_head_dim", 128},
                          {"yarn",
                           {{"original_max_position_embeddings", 8192},
                            {"factor", 36},
                            {"apply_scale", false}}}}),
           Profile::kMistral);
  EXPECT_EQ(rope.spec.rotary_dim, 64);
  EXPECT_EQ(rope.head_dim, 192);
  EXPECT_EQ(rope.spec.slice, RotarySlice::kTrailing);
  EXPECT_EQ(rope.attention_factor, 1);
  const long double g = 0.1L * std::log(36.0L) + 1;
  ExpectSame(rope.softmax_scale_multiplier, g * g);
}

TEST(MistralParamsTest, FillsInTheBaseOfItsTime) {
  json params = MistralParams({{"sliding_window", 4096}});
  params.erase("rope_theta");
  EXPECT_EQ(Read(params, Profile::kMistral).spec.rope_theta, 1e4);
  params.erase("sliding_window");
  EXPECT_EQ(Read(params, Profile::kMistral).spec.rope_theta, 1e6);
}

TEST(MistralParamsTest, NamesWhatIsMissingOrCannotBe) {
  const auto refused = [](const json& more, const std::string& text) {
    const absl::Status status =
        TryRead(MistralParams(more), Profile::kMistral).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  refused({{"head_dim", nullptr}, {"n_heads", 0}},
          "n_heads is 0; it must be at least 1");
  refused({{"head_dim", 0}}, "head_dim is 0; it must be at least 1");
  refused({{"yarn", {{"factor", 16}}}},
          "yarn.original_max_position_embeddings is missing; yarn needs it");
  const ResolvedRope derived =
      Read(MistralParams({{"head_dim", nullptr}}), Profile::kMistral);
  EXPECT_EQ(derived.head_dim, 128);
  EXPECT_TRUE(Assumed(derived, "head_dim", "128"));
  RopeSource source;
  source.source = ConfigJson{MistralParams(json::object()).dump()};
  source.layer_type = "full_attention";
  EXPECT_TRUE(ResolveSource(source, 0, MissingLength::kError).ok());
  source.layer_type = "conv";
  EXPECT_THAT(
      std::string(
          ResolveSource(source, 0, MissingLength::kError).status().message()),
      HasSubstr("layer_type: \"conv\" is not of this model"));
}

TEST(MistralParamsTest, RefusesOtherProjectsParams) {
  for (const char* key : {"multiple_of", "use_scaled_rope", "inter_dim"}) {
    const absl::Status status =
        TryRead(MistralParams(json{{key, 1}}), Profile::kMistral).status();
    const auto details = GetErrorDetails(status);
    ASSERT_TRUE(details.has_value()) << status;
    EXPECT_EQ(details->reason, ErrorReason::kModelConfigInvalid);
    EXPECT_THAT(std::string(status.message()), HasSubstr("format is not read"));
  }
  const absl::Status layer = [&] {
    RopeSource source;
    source.source = ConfigJson{MistralParams(json::object()).dump()};
    source.layer_index = 34;
    return ResolveSource(source, 0, MissingLength::kError).status();
  }();
  EXPECT_EQ(GetErrorDetails(layer)->field, "layer_index");
}

// Step 3.5 Flash, cut down: a list of bases, one for each layer.
json StepConfig() {
  return {{"model_type", "step3p5"},
          {"hidden_size", 4096},
          {"num_attention_heads", 64},
          {"head_dim", 128},
          {"num_hidden_layers", 4},
          {"max_position_embeddings", 262144},
          {"layer_types",
           {"full_attention", "sliding_attention", "sliding_attention",
            "sliding_attention", "full_attention"}},
          {"rope_theta", {5e6, 1e4, 1e4, 1e4, 5e6}},
          {"partial_rotary_factors", {0.5, 1.0, 1.0, 1.0, 0.5}},
          {"rope_scaling",
           {{"rope_type", "llama3"},
            {"factor", 2.0},
            {"original_max_position_embeddings", 131072},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 32.0}}}};
}

absl::StatusOr<ResolvedRope> ReadLayer(const json& config, int layer,
                                       Profile profile = Profile::kHf) {
  RopeSource source;
  source.source = ConfigJson{config.dump()};
  source.profile = profile;
  source.layer_index = layer;
  return ResolveSource(source, 0, MissingLength::kError);
}

TEST(StepConfigTest, HasABaseAndAWidthForEachLayer) {
  const auto full = ReadLayer(StepConfig(), 0);
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->spec.rotary_dim, 64);
  EXPECT_EQ(full->inv_freq[0], 1);
  // Turns 131072 times 5e6^(-31/32) / (2 pi) = 0.007 < 1 within the length.
  ExpectSame(full->inv_freq[31], std::pow(5e6L, -31 / 32.0L) / 2);
  const auto mlx = ReadLayer(StepConfig(), 0, Profile::kMlx);
  ASSERT_TRUE(mlx.ok()) << mlx.status();
  EXPECT_EQ(mlx->inv_freq, full->inv_freq);
  const auto sliding = ReadLayer(StepConfig(), 1);
  ASSERT_TRUE(sliding.ok()) << sliding.status();
  ASSERT_EQ(sliding->spec.rotary_dim, 128);
  for (int i = 0; i < 64; ++i) {
    ExpectSame(sliding->inv_freq[i], std::pow(1e4L, -i / 64.0L));
  }
  EXPECT_THAT(
      std::string(TryRead(StepConfig(), Profile::kHf).status().message()),
      HasSubstr("the model's layers differ"));
}

TEST(StepConfigTest, OtherModelsHaveOneBase) {
  EXPECT_THAT(std::string(TryRead({{"model_type", "llama"},
                                   {"hidden_size", 512},
                                   {"num_attention_heads", 8},
                                   {"rope_theta", {1e4, 5e5}}},
                                  Profile::kHf)
                              .status()
                              .message()),
              HasSubstr("rope_theta is of type array, [10000.0,500000.0]; it "
                        "must be a number"));
}

TEST(StepConfigTest, NamesAListThatIsNotOfNumbers) {
  json config = StepConfig();
  config["rope_theta"][1] = "1e4";
  EXPECT_THAT(std::string(ReadLayer(config, 0).status().message()),
              HasSubstr("rope_theta has an element of type string"));
  config["rope_theta"][1] = 7;
  EXPECT_THAT(std::string(ReadLayer(config, 0).status().message()),
              HasSubstr("differ among layers of type sliding_attention, at "
                        "layer 2"));
  config["rope_theta"] = json::array();
  EXPECT_THAT(std::string(ReadLayer(config, 0).status().message()),
              HasSubstr("rope_theta is of type array"));
}

TEST(NativeConfigTest, TheFirstChatGlmTurnsByTwoPositionsAndIsRefused) {
  const auto status = TryRead({{"model_type", "chatglm"},
                               {"hidden_size", 4096},
                               {"num_attention_heads", 32},
                               {"position_encoding_2d", true}},
                              Profile::kHf)
                          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("position_encoding_2d is true"));
}

}  // namespace
}  // namespace posenc::core
