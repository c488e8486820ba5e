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
