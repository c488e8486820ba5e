// Values that transformers refuses together (core/model/class_rules.h). The
// rules are the validators of transformers 5.23.0.

#include "core/model/class_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
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
  EXPECT_THAT(Warnings({{"hidden_size", 1024}}, "clip_vision_model"),
              ElementsAre("hidden_size is 1024, num_attention_heads is absent "
                          "and then 12, and transformers' class of model_type "
                          "clip_vision_model wants the former a multiple of "
                          "the latter: it refuses the file; it has no part in "
                          "rotation"));
  EXPECT_THAT(Warnings({{"hidden_size", 1024}, {"num_attention_heads", 16}},
                       "clip_vision_model"),
              IsEmpty());
  EXPECT_THAT(
      Warnings({{"text_config", {{"hidden_size", 2048}}}}, "dots3_note").size(),
      2u);
  EXPECT_THAT(Warnings({{"ffn_dim", 7}}, "moshi"),
              ElementsAre(HasSubstr("wants an even number")));
  EXPECT_THAT(Warnings({{"num_experts_per_tok", 9}}, "jetmoe"),
              ElementsAre(HasSubstr("the former at most the latter")));
  EXPECT_THAT(Warnings({{"num_quantizers", 1}}, "mimi"),
              ElementsAre(HasSubstr("the former below the latter")));
  EXPECT_THAT(
      Warnings({{"vision_feature_select_strategy", "default"}}, "fast_vlm"),
      ElementsAre(HasSubstr("wants full")));
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
