// Keys that have no part in rotation (core/model/other_keys.h).

#include "core/model/other_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json Llama(const json& more) {
  json config = {{"model_type", "llama"},
                 {"hidden_size", 512},
                 {"num_attention_heads", 8},
                 {"rope_theta", 1e4}};
  config.update(more);
  return config;
}

std::vector<std::string> Warnings(const json& config) {
  absl::Status status;
  std::vector<std::string> warnings;
  WarnOfOtherKeys(JsonObject(&config, "", &status), &warnings);
  EXPECT_TRUE(status.ok()) << status;
  return warnings;
}

TEST(OtherKeysTest, ValuesOfAWrongTypeAreSaid) {
  EXPECT_THAT(Warnings({{"rms_norm_eps", "1e-5"}}),
              ElementsAre("rms_norm_eps is \"1e-5\", and transformers wants a "
                          "number and refuses the file; it has no part in "
                          "rotation"));
  EXPECT_THAT(Warnings({{"num_experts_per_tok", 2.5}}),
              ElementsAre(HasSubstr("wants an integer")));
  EXPECT_THAT(Warnings({{"use_cache", "yes"}}),
              ElementsAre(HasSubstr("wants true or false")));
  EXPECT_THAT(Warnings({{"hidden_act", 1}}),
              ElementsAre(HasSubstr("wants a string")));
}

TEST(OtherKeysTest, NullsThatNoClassTakesAreSaid) {
  EXPECT_THAT(Warnings({{"initializer_range", nullptr}}),
              ElementsAre(HasSubstr("initializer_range is null, for which "
                                    "transformers wants a value")));
  EXPECT_THAT(Warnings({{"pad_token_id", nullptr}, {"n_group", nullptr}}),
              IsEmpty());
}

TEST(OtherKeysTest, WhatIsPublishedIsNot) {
  EXPECT_THAT(Warnings({{"eos_token_id", {1, 2}},
                        {"intermediate_size", {8192, 16384}},
                        {"attention_dropout", 0},
                        {"quantization_config", {{"bits", 4}}},
                        {"rope_theta", 1e4}}),
              IsEmpty());
}

// A class that is known to check them; others are not asked.
TEST(OtherKeysTest, OnlyFilesOfKnownClassesAreWarnedOf) {
  EXPECT_TRUE(Warned(Read(Llama({{"intermediate_size", "x"}}), Profile::kHf),
                     "intermediate_size is \"x\""));
  EXPECT_FALSE(Warned(Read(Llama({{"intermediate_size", "x"}}), Profile::kMlx),
                      "intermediate_size"));
  EXPECT_FALSE(Warned(Read({{"model_type", "minicpm"},
                            {"hidden_size", 512},
                            {"num_attention_heads", 8},
                            {"intermediate_size", "x"}},
                           Profile::kHf),
                      "intermediate_size"));
  // The type of the part is the parent's; its own keys stand at the top.
  EXPECT_TRUE(Warned(
      Read(
          {{"model_type", "qwen3_asr"},
           {"pad_token_id", nullptr},
           {"text_config", {{"hidden_size", 512}, {"num_attention_heads", 8}}}},
          Profile::kHf),
      "pad_token_id is null, for which transformers' class of "
      "model_type qwen3_asr wants an integer"));
}

}  // namespace
}  // namespace posenc::core
