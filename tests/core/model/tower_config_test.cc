// Configurations of vision and audio towers (core/model/tower_config.h). What
// transformers' own modules return is held by towers_test; these are the rules
// of reading.

#include "core/model/tower_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<ResolvedRope> TryPart(const json& config, ModelPart part) {
  RopeSource source;
  source.source = ConfigJson{config.dump()};
  source.part = part;
  return ResolveSource(source, 0, MissingLength::kError);
}

ResolvedRope Vision(const json& config) {
  auto rope = TryPart(config, ModelPart::kVision);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() ? *rope : ResolvedRope();
}

void ExpectRefused(const absl::StatusOr<ResolvedRope>& rope,
                   const std::string& field, const std::string& text) {
  EXPECT_EQ(rope.status().code(), absl::StatusCode::kInvalidArgument);
  const auto details = GetErrorDetails(rope.status());
  ASSERT_TRUE(details.has_value()) << rope.status();
  EXPECT_EQ(details->field, field);
  EXPECT_THAT(std::string(rope.status().message()), HasSubstr(text));
}

json QwenVision(const json& more = json::object()) {
  json tower = {
      {"model_type", "qwen3_vl"}, {"hidden_size", 1024}, {"num_heads", 16}};
  tower.update(more);
  return {{"model_type", "qwen3_vl"},
          {"text_config", {{"model_type", "qwen3_vl_text"}}},
          {"vision_config", tower}};
}

// Half of a head's pairs turn by the patch's row, half by its column:
// 10000^(-2i / (d / 2)) for i < d / 4.
TEST(TowerConfigTest, RowsAndColumnsHaveHalfOfAHeadEach) {
  const ResolvedRope rope = Vision(QwenVision());
  ASSERT_EQ(rope.inv_freq.size(), 32u);
  EXPECT_THAT(rope.spec.axes->sections, ElementsAre(16, 16));
  for (int i = 0; i < 16; ++i) {
    const double expected = std::pow(10000.0, -2.0 * i / 32);
    // The class computes in float32.
    EXPECT_NEAR(rope.inv_freq[i], expected, 1e-6 * expected);
    EXPECT_EQ(rope.inv_freq[16 + i], rope.inv_freq[i]);
    EXPECT_EQ(rope.axis_of_pair[i], 0);
    EXPECT_EQ(rope.axis_of_pair[16 + i], 1);
  }
}

// Kimi-VL's MoonViT turns neighbours, column and row in turn:
// 10000^(-4i / d) for both of the i-th two pairs.
TEST(TowerConfigTest, MoonVitTurnsColumnsAndRowsInTurn) {
  const ResolvedRope rope = Vision({{"model_type", "kimi_vl"},
                                    {"vision_config",
                                     {{"model_type", "moonvit"},
                                      {"hidden_size", 1152},
                                      {"num_attention_heads", 16}}}});
  ASSERT_EQ(rope.inv_freq.size(), 36u);
  EXPECT_EQ(rope.spec.pairing, Pairing::kInterleaved);
  for (int i = 0; i < 18; ++i) {
    const double expected = std::pow(10000.0, -4.0 * i / 72);
    EXPECT_NEAR(rope.inv_freq[2 * i], expected, 1e-6 * expected);
    EXPECT_EQ(rope.inv_freq[2 * i + 1], rope.inv_freq[2 * i]);
    EXPECT_EQ(rope.axis_of_pair[2 * i], 1);  // of height, width
    EXPECT_EQ(rope.axis_of_pair[2 * i + 1], 0);
  }
}

// dots.ocr's file gives the tower no type.
TEST(TowerConfigTest, ATowerWithoutATypeIsThatOfItsModel) {
  const ResolvedRope rope = Vision({{"model_type", "dots_ocr"},
                                    {"vision_config",
                                     {{"embed_dim", 1536},
                                      {"num_attention_heads", 12},
                                      {"spatial_merge_size", 2}}}});
  EXPECT_EQ(rope.spec.rotary_dim, 128);
  EXPECT_THAT(rope.spec.axes->sections, ElementsAre(32, 32));
}

TEST(TowerConfigTest, ATowersOwnFileNeedsNoPart) {
  const json tower = {{"model_type", "qwen3_vl_vision"},
                      {"hidden_size", 1024},
                      {"num_heads", 16}};
  const auto alone = TryPart(tower, ModelPart::kUnspecified);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->inv_freq, Vision(QwenVision()).inv_freq);
  ExpectRefused(TryPart(tower, ModelPart::kText), "part",
                "the configuration is that of a vision tower");
}

TEST(TowerConfigTest, AbsentKeysAreTheClassesAndAreSaid) {
  const ResolvedRope rope =
      Vision({{"model_type", "qwen2_vl"},
              {"vision_config", {{"model_type", "qwen2_vl"}}}});
  EXPECT_EQ(rope.head_dim, 80);  // 1280 / 16
  EXPECT_TRUE(Assumed(rope, "vision_config.embed_dim", "1280"));
  EXPECT_TRUE(Assumed(rope, "vision_config.num_heads", "16"));
  EXPECT_TRUE(Assumed(rope, "vision_config.rope_theta", "10000"));
}

TEST(TowerConfigTest, AModelWithoutTheTowerIsToldApartFromOneThatDoesNotTurn) {
  ExpectRefused(TryPart({{"model_type", "llama"}}, ModelPart::kVision), "part",
                "vision, but the configuration, of llama, has no "
                "vision_config");
  ExpectRefused(TryPart({{"model_type", "llama"}}, ModelPart::kAudio), "part",
                "audio, but the configuration, of llama, has no audio_config");
  ExpectRefused(
      TryPart({{"model_type", "llava"},
               {"vision_config", {{"model_type", "clip_vision_model"}}}},
              ModelPart::kVision),
      "config_json",
      "clip_vision_model: this vision tower has no rotary encoding, or none "
      "that is known here");
  ExpectRefused(
      TryPart({{"model_type", "mine"},
               {"vision_config", {{"model_type", "my"}, {"rope_theta", 1e4}}}},
              ModelPart::kVision),
      "config_json",
      "my is not a vision tower whose rotary encoding is known here");
}

TEST(TowerConfigTest, HeadsThatTheAxesCannotShareAreRefused) {
  for (const json& more :
       {json{{"hidden_size", 1000}}, json{{"hidden_size", 32}},
        json{{"num_heads", 1}, {"hidden_size", 1 << 20}}}) {
    ExpectRefused(TryPart(QwenVision(more), ModelPart::kVision), "config_json",
                  "needs a multiple of 4");
  }
  for (const json& heads : {json(0), json(-16), json(1 << 25)}) {
    ExpectRefused(
        TryPart(QwenVision({{"num_heads", heads}}), ModelPart::kVision),
        "config_json", "vision_config.num_heads is");
  }
  for (const json& heads : {json("16"), json(1.5), json::array()}) {
    ExpectRefused(
        TryPart(QwenVision({{"num_heads", heads}}), ModelPart::kVision),
        "config_json", "vision_config.num_heads");
  }
}

TEST(TowerConfigTest, BasesOutOfRangeAreRefused) {
  for (const double theta : {1.0, 0.0, -10000.0, 1e39}) {
    ExpectRefused(
        TryPart(QwenVision({{"rope_theta", theta}}), ModelPart::kVision),
        "config_json", "rope_theta is");
  }
}

TEST(TowerConfigTest, ErrorsNameTheKeysOfTheFile) {
  ExpectRefused(
      TryPart(
          QwenVision({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}),
          ModelPart::kVision),
      "config_json", "vision_config.rope_scaling.type is \"linear\"");
  ExpectRefused(
      TryPart(QwenVision({{"rope_parameters", {{"rope_theta", 1e308}}}}),
              ModelPart::kVision),
      "config_json", "vision_config.rope_parameters.rope_theta is 1e+308");
  ExpectRefused(TryPart(QwenVision({{"head_dim", 62}}), ModelPart::kVision),
                "config_json", "vision_config.head_dim is 62; qwen3_vl needs");
  ExpectRefused(TryPart(QwenVision({{"hidden_size", 992}}), ModelPart::kVision),
                "config_json",
                "vision_config.hidden_size and num_heads give heads of 62");
}

TEST(TowerConfigTest, KeysOfTheGridAreCheckedWhereNoGridIsAskedFor) {
  for (const json& size : {json(0), json("2")}) {
    ExpectRefused(
        TryPart(QwenVision({{"spatial_merge_size", size}}), ModelPart::kVision),
        "config_json", "vision_config.spatial_merge_size is");
  }
  ExpectRefused(TryPart({{"_class_name", 3}}, ModelPart::kUnspecified),
                "config_json", "_class_name is of type number");
}

TEST(TowerConfigTest, WhatTheClassReadsOtherwiseIsSaid) {
  EXPECT_TRUE(Warned(Vision(QwenVision({{"model_type", "clip_vision_model"}})),
                     "vision_config.model_type is \"clip_vision_model\", and "
                     "transformers' class of model_type qwen3_vl"));
  EXPECT_TRUE(Warned(Vision(QwenVision({{"hidden_size", 1028}})),
                     "vision_config.hidden_size is 1028, and the class of"));
}

TEST(TowerConfigTest, AnAudioPartNeedNotNameItsType) {
  const json audio = {
      {"hidden_size", 1280},
      {"num_attention_heads", 32},
      {"head_dim", 64},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}};
  const auto rope =
      TryPart({{"model_type", "voxtral_realtime"}, {"audio_config", audio}},
              ModelPart::kAudio);
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->inv_freq.size(), 32u);
  EXPECT_EQ(rope->spec.rope_theta, 1e6);
}

TEST(TowerConfigTest, ScalingsThatTheClassDoesNotKnowAreRefused) {
  ExpectRefused(
      TryPart(QwenVision({{"rope_parameters",
                           {{"rope_type", "yarn"}, {"rope_theta", 1e4}}}}),
              ModelPart::kVision),
      "config_json", "takes axial or default only");
}

TEST(TowerConfigTest, RopeScalingStandsBeforeRopeParametersWithAWarning) {
  const ResolvedRope rope = Vision(QwenVision(
      {{"rope_parameters", {{"rope_type", "axial"}, {"rope_theta", 500.0}}},
       {"rope_scaling", {{"rope_type", "axial"}, {"rope_theta", 100.0}}}}));
  EXPECT_NEAR(rope.inv_freq[1], std::pow(100.0, -1.0 / 16), 1e-6);
  EXPECT_TRUE(Warned(rope, "vision_config.rope_parameters is not read"));
}

TEST(TowerConfigTest, KeysThatTheTowerDoesNotReadAreSaid) {
  EXPECT_TRUE(Warned(Vision(QwenVision({{"rotary_dim", 8}})),
                     "vision_config.rotary_dim is not read"));
}

TEST(TowerConfigTest, ATableThatIsNoRotationIsRefusedWithTheReason) {
  ExpectRefused(TryPart({{"model_type", "vjepa2"}, {"hidden_size", 1024}},
                        ModelPart::kUnspecified),
                "config_json", "no rotation has such a table");
}

TEST(TowerConfigTest, OtherReadersAreNotAskedAndThatIsSaid) {
  RopeSource source;
  source.source = ConfigJson{QwenVision().dump()};
  source.part = ModelPart::kVision;
  source.profile = Profile::kVllm;
  const auto rope = ResolveSource(source, 0, MissingLength::kError);
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_TRUE(Warned(*rope, "this is transformers' interpretation"));
}

}  // namespace
}  // namespace posenc::core
