// Values that transformers refuses (core/model/other_keys.h).

#include "core/model/other_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<std::string> Warnings(const json& config) {
  absl::Status status;
  std::vector<std::string> warnings;
  WarnOfOtherKeys(JsonObject(&config, "", &status), &warnings);
  EXPECT_TRUE(status.ok()) << status;
  return warnings;
}

TEST(OtherKeysTest, ValuesOfAWrongTypeAreSaid) {
  EXPECT_THAT(
      Warnings(SmallLlama({{"rms_norm_eps", "1e-5"}})),
      ElementsAre("rms_norm_eps is \"1e-5\", for which transformers' class of "
                  "model_type llama wants a number with a point: it refuses "
                  "the file; it has no part in rotation"));
  EXPECT_THAT(Warnings(SmallLlama({{"use_cache", "yes"}})),
              ElementsAre(HasSubstr("wants true or false")));
  EXPECT_THAT(Warnings(SmallLlama({{"hidden_act", 1}})),
              ElementsAre(HasSubstr("wants a string")));
  EXPECT_THAT(Warnings(SmallLlama({{"vocab_size", 32000.0}})),
              ElementsAre(HasSubstr("wants an integer: it refuses the file; "
                                    "read as an integer")));
  EXPECT_THAT(Warnings(SmallLlama({{"dtype", "float99"}})),
              ElementsAre(HasSubstr("no type of torch")));
}

// transformers 5.23's classes take these files.
TEST(OtherKeysTest, KeysThatAClassDoesNotReadBesideAListAreNotRefused) {
  const json types = {"full_attention", "sliding_attention"};
  for (const json& file : std::vector<json>{
           {{"model_type", "gemma3_text"}, {"sliding_window_pattern", nullptr}},
           {{"model_type", "cohere2_moe"}, {"sliding_window_pattern", 0}},
           {{"model_type", "exaone4"}, {"sliding_window_pattern", 0}},
           {{"model_type", "qwen3_next"}, {"full_attention_interval", nullptr}},
           {{"model_type", "afmoe"}, {"global_attn_every_n_layers", 0}},
           {{"model_type", "bailing_hybrid"}, {"layer_group_size", 0}}}) {
    EXPECT_THAT(Warnings(file), ElementsAre(HasSubstr("it refuses the file")));
    json listed = file;
    listed["layer_types"] = types;
    EXPECT_THAT(Warnings(listed), IsEmpty()) << file;
  }
  EXPECT_THAT(Warnings({{"model_type", "smollm3"},
                        {"no_rope_layer_interval", 0},
                        {"no_rope_layers", {1, 0}}}),
              IsEmpty());
  EXPECT_THAT(Warnings({{"model_type", "axk1"},
                        {"first_k_dense_replace", nullptr},
                        {"mlp_layer_types", {"dense", "sparse"}}}),
              IsEmpty());
}

TEST(OtherKeysTest, AFlagThatAnotherAllowsIsNotRefused) {
  EXPECT_THAT(Warnings({{"model_type", "wav2vec2-bert"},
                        {"add_adapter", true},
                        {"use_intermediate_ffn_before_adapter", true}}),
              IsEmpty());
}

TEST(OtherKeysTest, MoreLayersThanAnyModelHasAreSaid) {
  EXPECT_THAT(Warnings({{"model_type", "recurrent_gemma"},
                        {"num_hidden_layers", std::int64_t{1} << 40}}),
              Contains("num_hidden_layers is 1099511627776: transformers "
                       "makes lists of as many layers, and fails or dies "
                       "for want of memory; it has no part in rotation"));
  EXPECT_THAT(Warnings({{"model_type", "dia"},
                        {"decoder_config",
                         {{"num_hidden_layers", std::int64_t{1} << 40}}}}),
              ElementsAre(HasSubstr("decoder_config.num_hidden_layers is")));
  EXPECT_THAT(Warnings(SmallLlama({{"num_hidden_layers", 1000}})), IsEmpty());
}

TEST(OtherKeysTest, AnArrayIsNoTypeOfTensors) {
  EXPECT_THAT(Warnings(SmallLlama({{"dtype", json::array()}})),
              ElementsAre(HasSubstr("dtype is [], an array, at which "
                                    "transformers fails")));
}

TEST(OtherKeysTest, AClassTakesAnIncompleteIndexerInNoFile) {
  const json part = {{"model_type", "qwen4_exp_text"}, {"indexer_n_heads", 4}};
  EXPECT_THAT(Warnings({{"model_type", "qwen4_exp"}, {"text_config", part}}),
              ElementsAre(HasSubstr("text_config.indexer_n_heads is given, and "
                                    "text_config.indexer_kv_heads, ")));
}

TEST(OtherKeysTest, NullsThatTheClassDoesNotTakeAreSaid) {
  EXPECT_THAT(Warnings(SmallLlama({{"initializer_range", nullptr}})),
              ElementsAre(HasSubstr("it refuses the file; read as absent")));
  EXPECT_THAT(Warnings(SmallLlama({{"pad_token_id", nullptr}})), IsEmpty());
}

TEST(OtherKeysTest, NumbersThatAreWrittenOtherwiseAreSaidToBeRead) {
  EXPECT_THAT(Warnings({{"model_type", "esm"}, {"rope_theta", 10000}}),
              ElementsAre(HasSubstr("read as that number")));
  EXPECT_THAT(Warnings(SmallLlama({{"pad_token_id", 1.5}})),
              ElementsAre(HasSubstr("it has no part in rotation")));
}

TEST(OtherKeysTest, EntriesWithinEntriesAreNotFollowed) {
  const json within = {{"per_layer_config", {{"0", {{"use_cache", 7}}}}}};
  EXPECT_THAT(Warnings(SmallLlama({{"per_layer_config", {{"0", within}}}})),
              IsEmpty());
}

TEST(OtherKeysTest, OfManyKeysTheFirstAreSaid) {
  json layers;
  for (int i = 0; i < 1000; ++i) layers[std::to_string(i)] = {{"use_cache", 7}};
  EXPECT_THAT(Warnings(SmallLlama({{"per_layer_config", layers}})),
              testing::SizeIs(65));
}

TEST(OtherKeysTest, WhatIsPublishedIsNot) {
  EXPECT_THAT(Warnings(SmallLlama({{"eos_token_id", {1, 2}},
                                   {"attention_dropout", 0},
                                   {"torch_dtype", "bfloat16"},
                                   {"quantization_config", {{"bits", 4}}}})),
              IsEmpty());
  EXPECT_THAT(Warnings({{"model_type", "bamba"},
                        {"time_step_limit", {0.0, "Infinity"}}}),
              IsEmpty());
}

TEST(OtherKeysTest, PartsAreCheckedByTheirOwnClasses) {
  const json parts = {
      {"model_type", "qwen3_vl"},
      {"image_token_id", "x"},
      {"text_config", {{"rms_norm_eps", "x"}}},
      {"vision_config", {{"model_type", "qwen3_vl"}, {"depth", "x"}}}};
  EXPECT_THAT(
      Warnings(parts),
      UnorderedElementsAre(
          HasSubstr("vision_config.depth is \"x\", for which transformers' "
                    "class of model_type qwen3_vl_vision"),
          HasSubstr("image_token_id is \"x\", for which transformers' class of "
                    "model_type qwen3_vl wants an integer"),
          HasSubstr(
              "text_config.rms_norm_eps is \"x\", for which transformers' "
              "class of model_type qwen3_vl_text")));
}

TEST(OtherKeysTest, EntriesOfSingleLayersAreChecked) {
  EXPECT_THAT(Warnings({{"model_type", "gemma4_text"},
                        {"per_layer_config",
                         {{"05", {{"head_dim", "x"}}}, {"11", {}}}}}),
              ElementsAre(HasSubstr("per_layer_config.05.head_dim is \"x\"")));
}

// A class that is known to check them; others are not asked.
TEST(OtherKeysTest, OnlyFilesOfKnownClassesAreWarnedOf) {
  EXPECT_TRUE(
      Warned(Read(SmallLlama({{"intermediate_size", "x"}}), Profile::kHf),
             "intermediate_size is \"x\""));
  EXPECT_FALSE(
      Warned(Read(SmallLlama({{"intermediate_size", "x"}}), Profile::kMlx),
             "intermediate_size"));
  EXPECT_FALSE(Warned(Read({{"model_type", "minicpm"},
                            {"hidden_size", 512},
                            {"num_attention_heads", 8},
                            {"intermediate_size", "x"}},
                           Profile::kHf),
                      "intermediate_size"));
  EXPECT_TRUE(Warned(
      Read(
          {{"model_type", "qwen3_asr"},
           {"pad_token_id", nullptr},
           {"text_config", {{"hidden_size", 512}, {"num_attention_heads", 8}}}},
          Profile::kHf),
      "pad_token_id is null, for which transformers' class of model_type "
      "qwen3_asr wants an integer"));
}

}  // namespace
}  // namespace posenc::core
