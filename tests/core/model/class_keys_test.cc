// The keys of a class, and what it takes for absent ones
// (core/model/class_keys.h, class_defaults.h).

#include "core/model/class_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ClassKeys KeysOf(const json& config, const std::string& model_type) {
  absl::Status status;
  bool known = false;
  const Family& family = FindFamily(model_type, &known);
  const ClassDefaults* row = FindClassDefaults(ModelKey(model_type));
  EXPECT_NE(row, nullptr) << model_type;
  if (row == nullptr) return {};
  return ReadAsClass(JsonObject(&config, "", &status), *row, family, model_type,
                     "transformers");
}

TEST(ClassKeysTest, AbsentKeysHaveTheClassesValues) {
  const ClassKeys keys = KeysOf({{"hidden_size", 2048}}, "llama");
  EXPECT_EQ(keys.config["num_attention_heads"], 32);
  EXPECT_THAT(keys.filled, ElementsAre("num_attention_heads"));
  EXPECT_THAT(keys.warnings, IsEmpty());
}

TEST(ClassKeysTest, AFileWithoutAnyWidthStaysSo) {
  EXPECT_THAT(KeysOf(json::object(), "llama").filled, IsEmpty());
  EXPECT_FALSE(TryRead({{"model_type", "llama"}}, Profile::kHf).ok());
}

// DeepSeek VL2's language_config states no slices.
TEST(ClassKeysTest, SlicesOfLatentHeadsAreTheClasses) {
  const json text = {{"model_type", "deepseek_v2"},
                     {"hidden_size", 2560},
                     {"num_attention_heads", 32},
                     {"kv_lora_rank", 512}};
  const ResolvedRope rope = Read(text, Profile::kHf);
  EXPECT_EQ(rope.spec.rotary_dim, 64);
  EXPECT_EQ(rope.head_dim, 192);
  EXPECT_TRUE(Assumed(rope, "qk_rope_head_dim", "64"));
  EXPECT_TRUE(Assumed(rope, "qk_nope_head_dim", "128"));
  json given = text;
  given["qk_rope_head_dim"] = 32;
  EXPECT_EQ(Read(given, Profile::kHf).spec.rotary_dim, 32);
  given["qk_rope_head_dim"] = nullptr;
  EXPECT_FALSE(TryRead(given, Profile::kHf).ok());
}

TEST(ClassKeysTest, Zamba2sHeadsAreOfTwiceTheWidth) {
  const json config = {{"model_type", "zamba2"},
                       {"hidden_size", 2560},
                       {"num_attention_heads", 32},
                       {"use_mem_rope", true}};
  EXPECT_EQ(Read(config, Profile::kHf).spec.rotary_dim, 160);
}

// LLaVA 1.5's text_config, as published.
TEST(ClassKeysTest, AComposedFilesPartHasItsClassesWidth) {
  const ResolvedRope rope =
      Read({{"model_type", "llava"},
            {"text_config",
             {{"model_type", "llama"}, {"max_position_embeddings", 4096}}}},
           Profile::kHf);
  EXPECT_EQ(rope.spec.rotary_dim, 128);
  EXPECT_TRUE(Assumed(rope, "text_config.hidden_size", "4096"));
  EXPECT_TRUE(Assumed(rope, "text_config.num_attention_heads", "32"));
  EXPECT_THAT(rope.warnings, IsEmpty());
  EXPECT_FALSE(
      TryRead({{"model_type", "llava"}, {"text_config", json::object()}},
              Profile::kHf)
          .ok());
}

TEST(ClassKeysTest, AnotherNameWithTheClassesValueIsNotWarnedOf) {
  EXPECT_THAT(KeysOf({{"hidden_size", 4096}, {"n_head", 32}}, "llama").warnings,
              IsEmpty());
}

TEST(ClassKeysTest, NamesOfOtherClassesAreNotRead) {
  const ClassKeys keys =
      KeysOf({{"hidden_size", 2048}, {"n_head", 16}}, "llama");
  EXPECT_FALSE(keys.config.contains("n_head"));
  EXPECT_THAT(keys.warnings,
              ElementsAre(HasSubstr(
                  "n_head 16 is not read: transformers' class of model_type "
                  "llama reads num_attention_heads, which is absent and then "
                  "32")));
}

TEST(ClassKeysTest, AClassHasItsOwnOtherNames) {
  const ClassKeys keys = KeysOf({{"n_embd", 4096}, {"n_head", 16}}, "gptj");
  EXPECT_EQ(keys.config["hidden_size"], 4096);
  EXPECT_EQ(keys.config["num_attention_heads"], 16);
  EXPECT_THAT(keys.warnings, IsEmpty());
}

TEST(ClassKeysTest, SomeClassesDoNotReadHeadDim) {
  const json config = {{"model_type", "roformer"},
                       {"hidden_size", 768},
                       {"num_attention_heads", 12},
                       {"head_dim", 96}};
  const ResolvedRope rope = Read(config, Profile::kHf);
  EXPECT_EQ(rope.spec.rotary_dim, 64);
  EXPECT_TRUE(Warned(rope, "head_dim 96 is not read"));
  json same = config;
  same["head_dim"] = 64;
  EXPECT_FALSE(Warned(Read(same, Profile::kHf), "head_dim"));
}

TEST(ClassKeysTest, FilledKeysAreAssumptions) {
  const ResolvedRope rope =
      Read({{"model_type", "llama"}, {"hidden_size", 2048}}, Profile::kHf);
  EXPECT_EQ(rope.head_dim, 64);
  EXPECT_TRUE(Assumed(rope, "num_attention_heads", "32"));
}

TEST(ClassKeysTest, OtherReadersTakeAnyName) {
  EXPECT_EQ(Read({{"model_type", "llama"},
                  {"n_embd", 2048},
                  {"n_head", 16},
                  {"rope_theta", 1e4}},
                 Profile::kLlamaCpp)
                .head_dim,
            128);
}

}  // namespace
}  // namespace posenc::core
