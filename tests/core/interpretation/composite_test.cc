// Finds the language model's part of a file (core/interpretation/composite.h).

#include "core/interpretation/composite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/interpretation/report.h"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Returns path and model type of the part.
std::pair<std::string, std::string> PartOf(const json& root) {
  Report report;
  std::string type;
  const JsonObject part = LanguagePart(JsonObject(&root, "", &report), &type);
  EXPECT_TRUE(report.ok()) << report.status;
  return {part.Path(), type};
}

std::vector<std::string> Warnings(const json& root) {
  Report report;
  WarnOfFile(root, &report);
  EXPECT_TRUE(report.ok()) << report.status;
  return report.warnings;
}

TEST(CompositeTest, AFlatFileIsItsOwnPart) {
  EXPECT_EQ(PartOf({{"model_type", "llama"}, {"hidden_size", 64}}),
            std::pair(std::string(), std::string("llama")));
}

TEST(CompositeTest, PartsMayBeNestedMoreThanOnce) {
  const json root = {
      {"model_type", "qwen2_5_omni"},
      {"thinker_config",
       {{"text_config", {{"model_type", "qwen2_5_omni_text"}}}}}};
  EXPECT_EQ(PartOf(root).first, "thinker_config.text_config");
  EXPECT_EQ(PartOf(root).second, "qwen2_5_omni_text");
}

TEST(CompositeTest, OfAnEncoderAndADecoderTheDecoderIsRead) {
  EXPECT_EQ(PartOf({{"model_type", "t5gemma2"},
                    {"encoder", {{"model_type", "t5gemma2_encoder"}}},
                    {"decoder", {{"model_type", "t5gemma2_decoder"}}}})
                .first,
            "decoder");
}

TEST(CompositeTest, AParentImpliesTheTypeOfItsPart) {
  EXPECT_EQ(
      PartOf({{"model_type", "llava"}, {"text_config", {{"hidden_size", 64}}}})
          .second,
      "llama");
}

TEST(CompositeTest, RotaryKeysBesideThePartAreNotRead) {
  const json part = {{"model_type", "llama"}, {"rope_theta", 1e4}};
  EXPECT_THAT(
      Warnings({{"model_type", "llava"},
                {"rope_theta", 5e5},
                {"text_config", part}}),
      ElementsAre(HasSubstr(
          "rope_theta 500000.0 is not read by transformers: text_config "
          "describes the model that rotates, and has "
          "10000.0")));
  EXPECT_THAT(Warnings({{"model_type", "llava"},
                        {"rope_theta", 1e4},
                        {"text_config", part}}),
              IsEmpty());
}

TEST(CompositeTest, ATypeThatItsTextHasTooIsWarnedOfAlike) {
  EXPECT_THAT(
      Warnings({{"model_type", "glm4v"}, {"hidden_size", 64}}),
      ElementsAre(HasSubstr("text_config is absent: transformers takes the "
                            "default of its class of model_type glm4v")));
  EXPECT_THAT(Warnings({{"model_type", "glm4v_text"}, {"hidden_size", 64}}),
              IsEmpty());
}

TEST(CompositeTest, DbrxsAttentionIsNoPart) {
  EXPECT_EQ(PartOf({{"model_type", "dbrx"},
                    {"d_model", 6144},
                    {"attn_config", {{"rope_theta", 5e5}}}})
                .first,
            "");
}

TEST(CompositeTest, AnAbsentPartIsTheClassesOwn) {
  EXPECT_THAT(Warnings({{"model_type", "llava"}, {"hidden_size", 64}}),
              ElementsAre(HasSubstr(
                  "text_config is absent: transformers takes the default")));
  EXPECT_THAT(Warnings({{"model_type", "fuyu"}, {"hidden_size", 64}}),
              IsEmpty());
}

TEST(CompositeTest, AParentAddsItsDefaults) {
  json root = {{"model_type", "voxtral"},
               {"text_config", {{"model_type", "llama"}}}};
  AddParentsDefaults(&root);
  EXPECT_EQ(root["text_config"]["rope_theta"], 1e8);
  root["text_config"]["head_dim"] = 64;
  AddParentsDefaults(&root);
  EXPECT_EQ(root["text_config"]["head_dim"], 64);
}

TEST(CompositeTest, ExaoneNeedsTheTypeOfItsText) {
  const json root = {{"model_type", "exaone4_5"},
                     {"text_config", {{"hidden_size", 64}}}};
  EXPECT_EQ(PartOf(root).second, "exaone4");
  EXPECT_THAT(Warnings(root),
              Contains(HasSubstr("text_config.model_type is absent")));
}

TEST(CompositeTest, ARotaryDictBesideAnOmniModelsPartsIsSaid) {
  const json root = {{"model_type", "qwen2_5_omni"},
                     {"rope_scaling", nullptr},
                     {"thinker_config", {{"text_config", {{"a", 1}}}}}};
  EXPECT_THAT(Warnings(root),
              Contains(HasSubstr("rope_scaling stands beside thinker_config")));
}

TEST(CompositeTest, APartOfAKnownTypeMayHaveAnyName) {
  EXPECT_EQ(PartOf({{"model_type", "lfm2_audio"},
                    {"encoder", {{"model_type", "my-encoder"}}},
                    {"lfm", {{"model_type", "lfm2"}, {"hidden_size", 2048}}}}),
            std::pair(std::string("lfm"), std::string("lfm2")));
}

// Dia's decoder has no text_config, so the reader reads the decoder itself.
TEST(CompositeTest, APartThatItsClassDoesNotHaveIsNotRead) {
  json decoder = {{"model_type", "dia_decoder"},
                  {"num_attention_heads", 16},
                  {"text_config", json::object()}};
  EXPECT_EQ(PartOf({{"model_type", "dia"}, {"decoder_config", decoder}}).first,
            "decoder_config");
  decoder["model_type"] = "qwen2_vl";  // its class has one
  EXPECT_EQ(PartOf({{"model_type", "x"}, {"decoder_config", decoder}}).first,
            "decoder_config.text_config");
}

TEST(CompositeTest, KeysBesideAPartOfAPartAreSaid) {
  const json part = {{"rope_scaling", 7},
                     {"text_config", {{"hidden_size", 64}}}};
  EXPECT_THAT(Warnings({{"model_type", "colqwen2"}, {"vlm_config", part}}),
              Contains(HasSubstr("vlm_config.rope_scaling 7 is not read by "
                                 "transformers")));
}

TEST(CompositeTest, PartsOfPerceptionEncodersHaveTheirParentsSizes) {
  json root = {{"model_type", "pe_audio"},
               {"text_config", {{"num_attention_heads", 8}}}};
  EXPECT_THAT(AddParentsDefaults(&root),
              ElementsAre("hidden_size", "num_hidden_layers"));
  EXPECT_EQ(root["text_config"]["hidden_size"], 1024);
}

TEST(CompositeTest, AModelOfTextIsNotReadByItsCodec) {
  const json codec = {{"model_type", "mimi"},
                      {"rope_parameters", {{"rope_theta", 1e4}}}};
  EXPECT_EQ(
      PartOf({{"model_type", "moshi"}, {"audio_encoder_config", codec}}).first,
      "");
  EXPECT_EQ(PartOf({{"model_type", "of-sound"}, {"audio_config", codec}}).first,
            "audio_config");
}

}  // namespace
}  // namespace posenc::core::interpretation
