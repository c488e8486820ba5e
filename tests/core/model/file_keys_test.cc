// Errors and warnings about a configuration name the keys of the file, in full,
// both values where two of them contradict, and what to do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "core/model/source.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// The message, without the field, of a file that is refused.
std::string Refusal(const json& config, Profile profile = Profile::kHf) {
  const absl::Status status = TryRead(config, profile).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << config;
  const auto details = GetErrorDetails(status);
  EXPECT_TRUE(details && details->field == "config_json") << status;
  const std::string text(status.message());
  return text.substr(text.find(": ") + 2);
}

json Neox(const json& more) {
  json config = {{"model_type", "gpt_neox"},
                 {"hidden_size", 2048},
                 {"num_attention_heads", 16},
                 {"rotary_pct", 0.25}};
  config.update(more);
  return config;
}

TEST(FileKeysTest, AWidthThatCannotTurnIsOfTheKeyThatGivesIt) {
  const std::string pairs = "they turn in pairs: give an even number";
  EXPECT_THAT(Refusal(SmallLlama({{"head_dim", 63}})),
              HasSubstr("head_dim is 63, by which 63 of the 63 channels of a "
                        "head turn; " +
                        pairs));
  EXPECT_THAT(Refusal(SmallLlama({{"hidden_size", 504}})),
              HasSubstr("hidden_size is 504, and num_attention_heads 8, by "
                        "which 63 of the 63 channels"));
  EXPECT_THAT(Refusal(Neox({{"rotary_pct", 0.001}})),
              HasSubstr("rotary_pct is 0.001, by which 0 of the 128 channels"));
  EXPECT_THAT(Refusal({{"model_type", "gptj"},
                       {"n_embd", 4096},
                       {"n_head", 16},
                       {"rotary_dim", 0}}),
              HasSubstr("rotary_dim is 0, by which 0 of the 256"));
  EXPECT_THAT(Refusal(GptOssOwn({{"head_dim", 63}})),
              HasSubstr("head_dim is 63"));
}

TEST(FileKeysTest, AWidthOfLayersThatNobodyAskedAboutSaysWhose) {
  const auto refusal = [](int head_dim, int global_head_dim,
                          const std::string& layer_type) {
    const json config = {
        {"model_type", "gemma4_text"}, {"hidden_size", 1024},
        {"num_attention_heads", 4},    {"num_hidden_layers", 6},
        {"head_dim", head_dim},        {"global_head_dim", global_head_dim}};
    RopeSource source;
    source.source = ConfigJson{config.dump()};
    source.layer_type = layer_type;
    return std::string(
        ResolveSource(source, 0, MissingLength::kError).status().message());
  };
  EXPECT_THAT(refusal(256, 511, "sliding_attention"),
              HasSubstr("layers of type full_attention: global_head_dim is "
                        "511, by which 511 of the 511 channels"));
  EXPECT_THAT(refusal(255, 512, "full_attention"),
              HasSubstr("layers of type sliding_attention: head_dim is 255, by "
                        "which 255 of the 255 channels"));
  EXPECT_THAT(refusal(255, 512, "sliding_attention"),
              HasSubstr("config_json: head_dim is 255"));
}

TEST(FileKeysTest, ABaseIsNamedAsTheFileNamesIt) {
  EXPECT_THAT(Refusal(Neox({{"rotary_emb_base", 1}})),
              HasSubstr("rotary_emb_base: is 1; must be finite and > 1"));
  EXPECT_THAT(Refusal({{"model_type", "llava"},
                       {"text_config", SmallLlama({{"rope_theta", 0}})}}),
              HasSubstr("text_config.rope_theta: is 0"));
  EXPECT_THAT(
      Refusal(SmallLlama({{"rope_parameters", {{"rope_theta", -1.0}}}})),
      HasSubstr("rope_parameters.rope_theta: is -1"));
}

TEST(FileKeysTest, SectionsAndScalingsAreNamedAsTheFileNamesThem) {
  const auto sections = [](const json& values) {
    return json{
        {"model_type", "qwen2_vl"},
        {"hidden_size", 3584},
        {"num_attention_heads", 28},
        {"rope_scaling", {{"type", "mrope"}, {"mrope_section", values}}}};
  };
  EXPECT_THAT(Refusal(sections({16, 24})),
              HasSubstr("rope_scaling.mrope_section: [16, 24] sum to 40; must "
                        "sum to rotary_dim / 2 = 64"));
  EXPECT_THAT(Refusal(sections(json::array())),
              HasSubstr("rope_scaling.mrope_section: is empty"));
  const json longrope = {{"model_type", "phi3"},
                         {"hidden_size", 64},
                         {"num_attention_heads", 8},
                         {"max_position_embeddings", 8192},
                         {"original_max_position_embeddings", -5},
                         {"rope_scaling",
                          {{"type", "longrope"},
                           {"short_factor", {1, 1, 1, 1}},
                           {"long_factor", {2, 2, 2, 2}}}}};
  EXPECT_THAT(Refusal(longrope),
              HasSubstr("original_max_position_embeddings: is -5"));
  EXPECT_THAT(Refusal(longrope),
              testing::Not(HasSubstr("longrope.original_max")));
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 4.0},
                     {"beta_slow", 64.0},
                     {"original_max_position_embeddings", 4096}};
  EXPECT_THAT(Refusal(SmallLlama({{"rope_scaling", yarn}})),
              HasSubstr("rope_scaling.beta_fast: is 32, and beta_slow is 64"));
}

TEST(FileKeysTest, AValueOfTheWrongTypeIsShown) {
  EXPECT_THAT(Refusal(SmallLlama({{"rope_theta", "5e5"}})),
              HasSubstr("rope_theta is of type string, \"5e5\"; it must be a "
                        "number"));
  EXPECT_THAT(Refusal(SmallLlama({{"layer_types", {1, 2}}})),
              HasSubstr("layer_types has an element of type number, 1; it "
                        "must be an array of strings"));
}

TEST(FileKeysTest, GptOssOwnFileHasItsOwnKeys) {
  EXPECT_THAT(Refusal(GptOssOwn({{"rope_scaling_factor", -1}})),
              HasSubstr("rope_scaling_factor: is -1"));
  EXPECT_THAT(Refusal(GptOssOwn({{"initial_context_length", 0}})),
              HasSubstr("initial_context_length: is unset or 0"));
  EXPECT_THAT(Refusal(GptOssOwn({{"rope_ntk_alpha", 64}})),
              HasSubstr("rope_ntk_beta: is 32, and"));
  const ResolvedRope rope =
      Read(GptOssOwn({{"rope_scaling_factor", 0.5}}), Profile::kHf);
  EXPECT_TRUE(Warned(rope, "rope_scaling_factor is 0.5"));
}

TEST(FileKeysTest, OtherProjectsFilesHaveTheirOwnKeys) {
  EXPECT_THAT(Refusal({{"model_type", "chatglm"},
                       {"hidden_size", 4096},
                       {"num_attention_heads", 32},
                       {"rope_ratio", -1}}),
              HasSubstr("rope_ratio is -1, and the base, 10000 times it, "
                        "-10000; it must be finite and > 1"));
  json step = {{"model_type", "step3p5"},
               {"head_dim", 128},
               {"rope_theta", {0.5, 0.5}},
               {"layer_types", {"full_attention", "sliding_attention"}}};
  EXPECT_THAT(
      Refusal(step),
      HasSubstr("layers of type sliding_attention: rope_theta: is 0.5"));
  step["rope_theta"] = {5e6, 1e4};
  step.erase("layer_types");
  EXPECT_THAT(Refusal(step), HasSubstr("layer_types has 0 elements"));
  EXPECT_THAT(Refusal({{"dim", 4096}, {"head_dim", 128}, {"n_heads", 0}}),
              HasSubstr("n_heads is 0; it must be at least 1"));
  EXPECT_THAT(Refusal({{"general.architecture", "llama"}}),
              HasSubstr("general.architecture is a key of a GGUF file's"));
}

TEST(FileKeysTest, ContradictionsGiveBothValues) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  EXPECT_TRUE(
      Warned(Read(SmallLlama({{"rope_scaling", llama3},
                              {"max_position_embeddings", 65536},
                              {"original_max_position_embeddings", 4096}}),
                  Profile::kHf),
             "original_max_position_embeddings is 4096, and "
             "rope_scaling.original_max_position_embeddings 8192; "
             "transformers takes 4096"));
  EXPECT_TRUE(
      Warned(Read(Neox({{"partial_rotary_factor", 0.5}}), Profile::kHf),
             "partial_rotary_factor is not read: it gives 64 of the 128"));
  const json gemma = {
      {"model_type", "gemma3_text"},
      {"hidden_size", 2560},
      {"num_attention_heads", 8},
      {"head_dim", 256},
      {"layer_types", {"full_attention"}},
      {"rope_theta", 5.0},
      {"rope_parameters",
       {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
        {"sliding_attention",
         {{"rope_type", "default"}, {"rope_theta", 1e4}}}}}};
  EXPECT_TRUE(Warned(Read(gemma, Profile::kHf),
                     "rope_theta 5 is not read: "
                     "rope_parameters.full_attention.rope_theta is 1e+06"));
}

TEST(FileKeysTest, AxesWithoutSectionsAreTold) {
  for (const Profile profile : {Profile::kVllm, Profile::kLlamaCpp}) {
    const ResolvedRope rope =
        Read(SmallLlama({{"rope_scaling", {{"type", "mrope"}}}}), profile);
    EXPECT_TRUE(Warned(rope,
                       "rope_scaling.type is \"mrope\", and "
                       "mrope_section, which says how many pairs"));
  }
}

}  // namespace
}  // namespace posenc::core
