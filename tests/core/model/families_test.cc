// The tables of model types (core/model/families.h, class_defaults.h).

#include "core/model/families.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_split.h"
#include "core/model/class_defaults.h"
#include "core/model/family_tables.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

TEST(FamiliesTest, NoTypeHasTwoRows) {
  std::set<std::string> seen;
  for (const auto& table :
       {PlainFamilies(), MultiAxisFamilies(), LayeredFamilies(),
        LatentFamilies(), RemoteFamilies()}) {
    for (const Family& family : table) {
      for (const absl::string_view type :
           absl::StrSplit(family.model_types, ' ')) {
        EXPECT_TRUE(seen.insert(std::string(type)).second) << type;
      }
    }
  }
  EXPECT_GT(seen.size(), 200u);
}

TEST(FamiliesTest, DefaultDictsAreJson) {
  for (const auto& table :
       {PlainFamilies(), MultiAxisFamilies(), LayeredFamilies(),
        LatentFamilies(), RemoteFamilies()}) {
    for (const Family& family : table) {
      if (family.rope_parameters.empty()) continue;
      EXPECT_TRUE(nlohmann::json::parse(family.rope_parameters, nullptr, false)
                      .is_object())
          << family.model_types;
    }
  }
}

TEST(FamiliesTest, TypesAreSpelledInManyWays) {
  for (const char* type : {"qwen3_vl_text", "qwen3-vl", "qwen3 vl"}) {
    bool known = false;
    EXPECT_EQ(FindFamily(type, &known).head_dim, 128);
    EXPECT_TRUE(known) << type;
  }
  bool known = true;
  FindFamily("no such model", &known);
  EXPECT_FALSE(known);
}

// The two tables have one head for a class that names it.
TEST(FamiliesTest, AgreeWithTheClassesAboutHeads) {
  for (const auto& table :
       {PlainFamilies(), MultiAxisFamilies(), LayeredFamilies()}) {
    for (const Family& family : table) {
      for (const absl::string_view type :
           absl::StrSplit(family.model_types, ' ')) {
        const ClassDefaults* row = FindClassDefaults(type);
        if (row == nullptr || row->head_dim == 0 || family.head_dim == 0) {
          continue;
        }
        EXPECT_EQ(row->head_dim, family.head_dim) << type;
      }
    }
  }
}

// What the code beside ChatGLM3, Qwen, StableLM and Phi 2 checkpoints computes.
TEST(RemoteFamiliesTest, AreReadAsTheCodeBesideTheirCheckpointsDoes) {
  const auto read = [](nlohmann::json config, const char* type) {
    config.update(
        {{"model_type", type}, {"hidden_size", 4096}, {"seq_length", 8192}});
    config.emplace("num_attention_heads", 32);
    const ResolvedRope rope = Read(config, Profile::kHf);
    EXPECT_TRUE(Warned(rope, "has no class in transformers")) << type;
    return rope;
  };
  const ResolvedRope glm =
      read({{"kv_channels", 128}, {"rope_ratio", 50}}, "chatglm");
  EXPECT_EQ(glm.spec.rotary_dim, 64);
  EXPECT_EQ(glm.spec.rope_theta, 500000);
  EXPECT_EQ(glm.spec.pairing, Pairing::kInterleaved);
  EXPECT_EQ(read({{"rotary_emb_base", 1e6}, {"kv_channels", 128}}, "qwen")
                .spec.rope_theta,
            1e6);
  EXPECT_EQ(read({{"rope_pct", 0.25}}, "stablelm_epoch").spec.rotary_dim, 32);
  EXPECT_EQ(read({{"rotary_dim", 32}}, "phi-msft").spec.rotary_dim, 32);
  EXPECT_EQ(read({{"rotary_dim", 64}, {"head_dim", 128}}, "minimax_text_01")
                .spec.rotary_dim,
            64);
}

// Phi-3-small's, Fish Speech's, MOSS's, NeoBERT's and Phi-4-mini-flash's code.
TEST(RemoteFamiliesTest, HaveTheirOwnBasesWidthsAndPairs) {
  const auto read = [](nlohmann::json config, const char* type) {
    config.update({{"model_type", type}});
    return Read(config, Profile::kHf);
  };
  EXPECT_EQ(read({{"hidden_size", 4096},
                  {"num_attention_heads", 32},
                  {"rope_embedding_base", 2e6}},
                 "phi3small")
                .spec.rope_theta,
            2e6);
  const ResolvedRope fish = read(
      {{"dim", 1024}, {"n_head", 16}, {"head_dim", 128}, {"rope_base", 1e6}},
      "dual_ar");
  EXPECT_EQ(fish.spec.rope_theta, 1e6);
  EXPECT_EQ(fish.spec.rotary_dim, 128);
  EXPECT_EQ(fish.spec.pairing, Pairing::kInterleaved);
  const ResolvedRope moss = read({{"n_embd", 6144}, {"n_head", 24}}, "moss");
  EXPECT_EQ(moss.spec.rotary_dim, 64);
  EXPECT_EQ(moss.spec.pairing, Pairing::kInterleaved);
  EXPECT_EQ(read({{"hidden_size", 768}, {"num_attention_heads", 12}}, "neobert")
                .spec.pairing,
            Pairing::kInterleaved);
  EXPECT_TRUE(read({{"hidden_size", 2560},
                    {"num_attention_heads", 40},
                    {"rope_theta", 1e4}},
                   "phi4flash")
                  .spec.nope);
}

TEST(UnknownTypesTest, TakeTheBaseAndTheShareByAnyName) {
  const nlohmann::json heads = {{"model_type", "mine"},
                                {"hidden_size", 1024},
                                {"num_attention_heads", 8}};
  for (const char* const key :
       {"rotary_emb_base", "rope_embedding_base", "rotary_embedding_base",
        "rope_base", "rope_freq_base"}) {
    nlohmann::json config = heads;
    config[key] = 20000;
    const ResolvedRope rope = Read(config, Profile::kHf);
    EXPECT_EQ(rope.spec.rope_theta, 20000) << key;
    EXPECT_TRUE(Assumed(rope, "rope_theta", "20000")) << key;
    config["rope_theta"] = 5e5;
    EXPECT_EQ(Read(config, Profile::kHf).spec.rope_theta, 5e5) << key;
  }
  for (const char* const key :
       {"rotary_pct", "rotary_emb_fraction", "rope_pct", "rope_percent"}) {
    nlohmann::json config = heads;
    config["rope_theta"] = 1e4;
    config[key] = 0.25;
    EXPECT_EQ(Read(config, Profile::kHf).spec.rotary_dim, 32) << key;
  }
  nlohmann::json config = heads;
  config["rotary_dim"] = 64;
  EXPECT_EQ(Read(config, Profile::kHf).spec.rotary_dim, 64);
}

TEST(UnknownTypesTest, OfLatentAttentionRotateItsSlice) {
  const ResolvedRope rope = Read({{"model_type", "mine"},
                                  {"hidden_size", 2048},
                                  {"num_attention_heads", 16},
                                  {"kv_lora_rank", 512},
                                  {"qk_nope_head_dim", 128},
                                  {"qk_rope_head_dim", 64},
                                  {"rope_theta", 1600000}},
                                 Profile::kHf);
  EXPECT_EQ(rope.spec.rotary_dim, 64);
  EXPECT_EQ(rope.head_dim, 192);
  EXPECT_EQ(rope.spec.slice, RotarySlice::kTrailing);
  EXPECT_EQ(rope.spec.pairing, Pairing::kInterleaved);
  EXPECT_TRUE(Warned(rope,
                     "is not known here: transformers refuses types that "
                     "it does not know; read as DeepSeek V3's class"));
}

// DeepSeek-VL2-tiny's and DeepSeek-OCR's language models.
TEST(UnknownTypesTest, LatentAttentionThatIsTurnedOffIsLlamas) {
  const ResolvedRope rope = Read({{"model_type", "deepseek_vl_v2"},
                                  {"language_config",
                                   {{"model_type", "deepseek_v2"},
                                    {"hidden_size", 1280},
                                    {"num_attention_heads", 10},
                                    {"qk_nope_head_dim", 0},
                                    {"qk_rope_head_dim", 0},
                                    {"use_mla", false}}}},
                                 Profile::kHf);
  EXPECT_EQ(rope.spec.rotary_dim, 128);
  EXPECT_EQ(rope.spec.pairing, Pairing::kHalfSplit);
  EXPECT_EQ(rope.spec.slice, RotarySlice::kLeading);
  EXPECT_TRUE(Warned(rope, "use_mla is false"));
}

// GPT-J's class takes 64 channels, and the whole head for null.
TEST(FamiliesTest, AnAbsentRotaryDimIsTheClasss) {
  nlohmann::json config = {
      {"model_type", "gptj"}, {"n_embd", 4096}, {"n_head", 16}};
  const ResolvedRope rope = Read(config, Profile::kHf);
  EXPECT_EQ(rope.spec.rotary_dim, 64);
  EXPECT_TRUE(Assumed(rope, "rotary_dim", "64"));
  config["rotary_dim"] = nullptr;
  EXPECT_EQ(Read(config, Profile::kHf).spec.rotary_dim, 256);
}

// Baichuan's 13B checkpoints have ALiBi, and no max_position_embeddings.
TEST(RemoteFamiliesTest, BaichuanTurnsOnlyWhereItStatesItsLength) {
  nlohmann::json config = {{"model_type", "baichuan"},
                           {"hidden_size", 4096},
                           {"num_attention_heads", 32},
                           {"model_max_length", 4096}};
  EXPECT_TRUE(Read(config, Profile::kHf).spec.nope);
  config["max_position_embeddings"] = 4096;
  EXPECT_EQ(Read(config, Profile::kHf).spec.rotary_dim, 128);
}

}  // namespace
}  // namespace posenc::core
