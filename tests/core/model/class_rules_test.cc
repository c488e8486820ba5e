// Values that transformers refuses together (core/model/class_rules.h). The
// rules are the validators of transformers 5.23.0.

#include "core/model/class_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Warnings(const json& config,
                                  const std::string& model_type) {
  absl::Status status;
  std::vector<std::string> warnings;
  WarnOfClassRules(JsonObject(&config, "", &status), model_type, &warnings);
  EXPECT_TRUE(status.ok()) << status;
  return warnings;
}

TEST(ClassRulesTest, TwoValuesThatAClassRefusesTogetherAreSaid) {
  EXPECT_THAT(
      Warnings({{"hidden_size", 1024}}, "clip_vision_model"),
      ElementsAre(
          "hidden_size is 1024, num_attention_heads is absent "
          "and then 12, and transformers' class of model_type "
          "clip_vision_model wants hidden_size % "
          "num_attention_heads == 0: it refuses the file; it has no part in "
          "rotation"));
  EXPECT_THAT(Warnings({{"hidden_size", 1024}, {"num_attention_heads", 16}},
                       "clip_vision_model"),
              IsEmpty());
  EXPECT_THAT(
      Warnings({{"text_config", {{"hidden_size", 2048}}}}, "dots3_note").size(),
      2u);
  EXPECT_THAT(Warnings({{"ffn_dim", 7}}, "moshi"),
              ElementsAre(HasSubstr("wants ffn_dim % 2 == 0")));
  EXPECT_THAT(
      Warnings({{"num_experts_per_tok", 9}}, "jetmoe"),
      ElementsAre(HasSubstr("num_experts_per_tok <= num_local_experts")));
  EXPECT_THAT(Warnings({{"num_hidden_layers", 301}}, "recurrent_gemma"),
              ElementsAre(HasSubstr(
                  "num_hidden_layers <= elements of block_types * 100")));
  EXPECT_THAT(Warnings({{"num_hidden_layers", 300}}, "recurrent_gemma"),
              IsEmpty());
  EXPECT_THAT(
      Warnings({{"num_quantizers", 1}}, "mimi"),
      ElementsAre(HasSubstr("num_semantic_quantizers < num_quantizers")));
  EXPECT_THAT(
      Warnings({{"vision_feature_select_strategy", "default"}}, "fast_vlm"),
      ElementsAre(HasSubstr("wants full")));
}

TEST(ClassRulesTest, AValueIsSaidOnceWithItsPath) {
  absl::Status status;
  std::vector<std::string> warnings;
  const json part = {{"head_dim", 127}};
  WarnOfClassRules(JsonObject(&part, "depth_decoder_config", &status),
                   "csm_depth_decoder_model", &warnings);
  EXPECT_THAT(
      warnings,
      ElementsAre("depth_decoder_config.head_dim is 127, and transformers' "
                  "class of model_type csm_depth_decoder_model wants head_dim "
                  "to be even, or at most 3: it refuses the file; it has no "
                  "part in rotation"));
  const json sizes = {{"num_hidden_layers", 2}, {"depths", {1, 1, 1}}};
  warnings.clear();
  WarnOfClassRules(JsonObject(&sizes, "audio_config", &status),
                   "muse_spark_audio", &warnings);
  EXPECT_THAT(
      warnings,
      testing::Contains(HasSubstr(
          "audio_config.depths has 3 elements, audio_config.num_hidden_layers "
          "is 2, and transformers' class of model_type muse_spark_audio wants "
          "elements of depths == num_hidden_layers")));
}

TEST(ClassRulesTest, SidesAreComputedAsPythonDoes) {
  // 1 + 1 * 8 frames are 16, and 15 are fewer.
  EXPECT_THAT(Warnings({{"streaming_config", {{"speaker_cache_length", 15}}}},
                       "nemotron3_diarization"),
              ElementsAre(AllOf(
                  HasSubstr("speaker_cache_length is 15, and"),
                  HasSubstr("(streaming_config.speaker_cache_silence_frames_"
                            "per_speaker + 1) * streaming_config.num_speakers "
                            "<= streaming_config.speaker_cache_length"))));
  // -7 / 4 is -2, and -7 % 4 is 1.
  EXPECT_THAT(Warnings({{"text_config", {{"hidden_size", -7}}},
                        {"adaptor_config",
                         {{"hidden_size", -7}, {"intermediate_size", -2}}}},
                       "fun_asr_nano"),
              IsEmpty());
  EXPECT_THAT(
      Warnings({{"n_routed_experts", 7}, {"n_group", 4}}, "axk2").size(), 2u);
  // Division by 0 is what the class fails at.
  EXPECT_THAT(Warnings({{"num_attention_heads", 0}}, "clip_vision_model"),
              ElementsAre(HasSubstr("num_attention_heads is 0")));
  EXPECT_THAT(
      Warnings({{"hidden_size", INT64_MIN}, {"num_attention_heads", -1}},
               "clip_vision_model"),
      IsEmpty());
}

TEST(ClassRulesTest, KeysThatAClassTakesTogetherAreSaidIfOneIsMissing) {
  json config = {{"indexer_n_heads", 4},
                 {"indexer_kv_heads", 1},
                 {"indexer_head_dim", 128},
                 {"indexer_budget", 2048},
                 {"indexer_compress_ratio", 4}};
  EXPECT_THAT(Warnings(config, "qwen4_exp_text"), IsEmpty());
  config.erase("indexer_budget");
  config["indexer_kv_heads"] = nullptr;
  EXPECT_THAT(
      Warnings(config, "qwen4_exp_text"),
      ElementsAre(HasSubstr(
          "indexer_n_heads, indexer_head_dim, indexer_compress_ratio "
          "are given, and indexer_kv_heads, indexer_budget are not, and "
          "transformers' class of model_type qwen4_exp_text wants all "
          "of them or none")));
  EXPECT_THAT(Warnings({{"hidden_size", 2048}}, "qwen4_exp_text"), IsEmpty());
}

TEST(ClassRulesTest, CodebooksAreAPowerOfTwo) {
  EXPECT_THAT(Warnings({{"codebook_size", 2048}}, "mimi"), IsEmpty());
  EXPECT_THAT(Warnings({{"codebook_size", 2047}}, "mimi"),
              ElementsAre(HasSubstr("wants a power of 2")));
}

TEST(ClassRulesTest, ListsCountByTheirLength) {
  EXPECT_THAT(
      Warnings({{"num_hidden_layers", 2},
                {"patch_sizes", {16, 6}},
                {"hidden_sizes", {256, 512}},
                {"depths", {2, 2, 2}}},
               "muse_spark_audio"),
      ElementsAre(HasSubstr("depths has 3 elements, num_hidden_layers is 2")));
  // Without a list there is nothing to count.
  EXPECT_THAT(Warnings({{"num_hidden_layers", 2}}, "laguna"), IsEmpty());
}

TEST(ClassRulesTest, ValuesOfOtherTypesAreOtherRules) {
  EXPECT_THAT(Warnings({{"hidden_size", "x"}}, "clip_vision_model"), IsEmpty());
  EXPECT_THAT(Warnings({{"text_config", 1}}, "granite_docling"), IsEmpty());
  EXPECT_THAT(Warnings({{"hidden_size", 1024}}, "llama"), IsEmpty());
}

TEST(ClassRulesTest, HeadsOfStateSpacesFillTheirLayer) {
  const json bamba = {
      {"hidden_size", 4096}, {"mamba_n_heads", 128}, {"mamba_d_head", 64}};
  EXPECT_THAT(Warnings(bamba, "bamba"), IsEmpty());
  EXPECT_THAT(Warnings({{"hidden_size", 1024}, {"mamba_n_heads", 48}}, "bamba"),
              ElementsAre(HasSubstr(
                  "mamba_n_heads is 48, and transformers' class of model_type "
                  "bamba wants such heads to be 2048 channels wide together")));
  EXPECT_THAT(Warnings({{"hidden_size", 1024},
                        {"mamba_n_heads", 48},
                        {"mamba_d_head", "auto"}},
                       "bamba"),
              ElementsAre(HasSubstr("2048 channels wide together")));
  EXPECT_THAT(Warnings({{"mamba_d_head", 65}}, "granitemoehybrid"),
              ElementsAre(HasSubstr("and mamba_d_head is 65")));
  EXPECT_THAT(
      Warnings({{"mamba_d_ssm", 1536}, {"mamba_n_heads", 24}}, "falcon_h1"),
      IsEmpty());
  EXPECT_THAT(Warnings({{"hidden_size", 1LL << 62}}, "bamba"), IsEmpty());
}

TEST(ClassRulesTest, KimiLinearsListsNameEveryLayer) {
  json config = {{"num_hidden_layers", 4},
                 {"linear_attn_config",
                  {{"full_attn_layers", {4}}, {"kda_layers", {1, 2, 3}}}}};
  EXPECT_THAT(Warnings(config, "kimi_linear"), IsEmpty());
  config["num_hidden_layers"] = 5;
  EXPECT_THAT(Warnings(config, "kimi_linear"),
              ElementsAre(HasSubstr("linear_attn_config names 4 layers")));
}

}  // namespace
}  // namespace posenc::core
