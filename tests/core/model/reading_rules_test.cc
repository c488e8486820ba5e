// Differences between readers, and between versions of one reader
// (core/model/reading_rules.h).

#include "core/model/reading_rules.h"

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "core/model/profile.h"
#include "core/model/source.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json Config(const std::string& model_type, const json& more) {
  json config = {{"model_type", model_type},
                 {"hidden_size", 512},
                 {"num_attention_heads", 8},
                 {"num_hidden_layers", 4},
                 {"max_position_embeddings", 8192}};
  config.update(more);
  return config;
}

const json& NewSpelling() {
  static const auto& dict = *new json(
      {{"rope_theta", 5e5}, {"rope_type", "linear"}, {"factor", 4.0}});
  return dict;
}

absl::StatusOr<ResolvedRope> TryVersion(const json& config, Profile profile,
                                        const std::string& version) {
  RopeSource source;
  source.source = ConfigJson{config.dump()};
  source.profile = profile;
  source.profile_version = version;
  return ResolveSource(source, 0, MissingLength::kAssumeOriginal);
}

ResolvedRope ReadVersion(const json& config, Profile profile,
                         const std::string& version) {
  auto rope = TryVersion(config, profile, version);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() ? *rope : ResolvedRope();
}

TEST(ReadingRulesTest, RowsAreComplete) {
  for (const ReadingRow& row : ReadingRows()) {
    EXPECT_FALSE(row.says.empty());
    EXPECT_FALSE(row.what.empty() && (row.rule == ReadingRule::kKnowsType ||
                                      row.rule == ReadingRule::kNeedsKeys))
        << row.says;
    EXPECT_EQ(row.number == 0, row.rule != ReadingRule::kDefaultBase &&
                                   row.rule != ReadingRule::kFixedBase &&
                                   row.rule != ReadingRule::kDefaultShare &&
                                   row.rule != ReadingRule::kDefaultSlice &&
                                   row.rule != ReadingRule::kDefaultRest)
        << row.says;
    for (const absl::string_view version : {row.since, row.until}) {
      EXPECT_TRUE(version.empty() || ParseVersion(row.reader, version).ok())
          << version;
    }
  }
}

TEST(ReadingRulesTest, ReadersReadAsVersionsOfTheirProject) {
  for (const Reader& reader : Readers()) {
    EXPECT_EQ(FindReader(reader.id), &reader);
    EXPECT_TRUE(reader.reads_as.empty() ||
                ParseVersion(reader.profile, reader.reads_as).ok())
        << reader.id;
  }
  EXPECT_EQ(FindReader("nobody"), nullptr);
  const Reader& older = *FindReader("hf4");
  EXPECT_TRUE(LacksClass(older.profile, VersionOf(older), "qwen3_5"));
  EXPECT_FALSE(LacksClass(older.profile, VersionOf(older), "qwen3"));
  EXPECT_FALSE(LacksClass(Profile::kHf, {}, "qwen3_5"));
  EXPECT_FALSE(LacksClass(Profile::kMlx, {}, "qwen3_5"));
  EXPECT_TRUE(LacksClass(Profile::kMlx, {}, "nomic_bert"));
}

TEST(ReadingRulesTest, VersionsCompareByTheirNumbers) {
  const Version version = *ParseVersion(Profile::kVllm, "0.22.0");
  EXPECT_TRUE(IsSince(version, "0.22"));
  EXPECT_TRUE(IsSince(version, "0.9.1"));
  EXPECT_FALSE(IsSince(version, "0.22.1"));
  EXPECT_FALSE(IsSince(version, "0.100"));
  EXPECT_TRUE(IsSince(*ParseVersion(Profile::kVllm, "v1"), "0.33.0"));
  EXPECT_TRUE(IsSince({}, "99"));
}

TEST(ReadingRulesTest, VersionsAreNumbersWithDots) {
  for (const char* text : {"abc", "0..1", "-1", "0.33.", ".", "1e3", " 0.33",
                           "0.33 ", "v", "99999999999999999999", "0x10",
                           "1.2.3.4.5.6.7.8.9.10.11.12.13.14.15"}) {
    const absl::Status status = ParseVersion(Profile::kVllm, text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    const auto details = GetErrorDetails(status);
    ASSERT_TRUE(details.has_value()) << text;
    EXPECT_EQ(details->field, "profile_version");
  }
}

TEST(ReadingRulesTest, ReferenceImplementationsHaveNoVersions) {
  for (const Profile profile : {Profile::kLlamaCpp, Profile::kGptOss,
                                Profile::kDeepseek, Profile::kMistral}) {
    const auto status =
        TryVersion(Config("llama", json::object()), profile, "1.0").status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("are told apart; leave it unset"));
  }
}

TEST(ReadingRulesTest, ASpecHasNoVersion) {
  RopeSource source;
  source.source = RopeSpec{.rotary_dim = 64, .pairing = Pairing::kHalfSplit};
  source.profile_version = "0.33.0";
  const auto status = ResolveSource(source, 64, MissingLength::kError).status();
  ASSERT_TRUE(GetErrorDetails(status).has_value());
  EXPECT_EQ(GetErrorDetails(status)->field, "profile_version");
}

TEST(ReadingRulesTest, VersionsBeyondThoseKnownAreReadAsTheNearest) {
  const json config = Config("llama", {{"rope_theta", 1e4}});
  EXPECT_TRUE(Assumed(ReadVersion(config, Profile::kVllm, "0.99.0"),
                      "profile_version", "0.33.0"));
  EXPECT_TRUE(Assumed(ReadVersion(config, Profile::kVllm, "0.4"),
                      "profile_version", "0.11.0"));
  EXPECT_FALSE(Assumed(ReadVersion(config, Profile::kVllm, "0.33"),
                       "profile_version", "0.33.0"));
  EXPECT_TRUE(ReadVersion(config, Profile::kVllm, "0.33").assumptions.empty());
}

TEST(ReadingRulesTest, MlxDropsRopeParametersOfMostClasses) {
  const ResolvedRope rope = Read(
      Config("llama", {{"rope_parameters", NewSpelling()}}), Profile::kMlx);
  ExpectSame(rope.inv_freq[16], std::pow(1e4L, -0.5L));
  EXPECT_TRUE(Warned(rope, "rope_parameters {"));
  EXPECT_TRUE(Warned(rope, "500000"));
  EXPECT_TRUE(Warned(rope,
                     "mlx-lm reads rope_theta and rope_scaling, not "
                     "rope_parameters"));
  EXPECT_TRUE(Assumed(rope, "rope_theta", "10000"));
}

TEST(ReadingRulesTest, MlxFailsWhereAClassNeedsABaseThatItDoesNotRead) {
  const auto status =
      TryRead(Config("qwen3_moe", {{"rope_parameters", NewSpelling()}}),
              Profile::kMlx)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rope_theta is missing; mlx-lm's class of model_type "
                        "qwen3_moe needs it"));
}

TEST(ReadingRulesTest, MlxNamesTheBaseOfTheLayersThatIsMissing) {
  RopeSource source;
  source.profile = Profile::kMlx;
  source.layer_type = "sliding_attention";
  for (const auto& [type, key] :
       {std::pair("gemma3n", "rope_local_base_freq"),
        std::pair("mimo_v2_flash", "swa_rope_theta")}) {
    const json config =
        Config(type, {{"rope_theta", 1e6},
                      {"partial_rotary_factor", 0.5},
                      {"layer_types",
                       {"sliding_attention", "full_attention",
                        "sliding_attention", "full_attention"}}});
    source.source = ConfigJson{config.dump()};
    const auto rope = ResolveSource(source, 0, MissingLength::kAssumeOriginal);
    EXPECT_THAT(std::string(rope.status().message()),
                HasSubstr(absl::StrCat(key, " is missing; mlx-lm's class")));
  }
}

TEST(ReadingRulesTest, SlicesOfKimiK2AreItsOwnCodes) {
  json config = Config("kimi_k2", {{"rope_theta", 5e4}});
  const ResolvedRope rope = Read(config, Profile::kHf);
  EXPECT_EQ(rope.spec.rotary_dim, 64);
  EXPECT_EQ(rope.head_dim, 192);
  int slices = 0;
  for (const auto& one : rope.assumptions) {
    if (one.field != "qk_rope_head_dim" && one.field != "qk_nope_head_dim") {
      continue;
    }
    ++slices;
    EXPECT_EQ(one.reason, "absent; default of the code beside its checkpoint");
  }
  EXPECT_EQ(slices, 2);
  EXPECT_TRUE(Assumed(rope, "qk_rope_head_dim", "64"));
  EXPECT_TRUE(Assumed(rope, "qk_nope_head_dim", "128"));
  EXPECT_TRUE(Warned(rope, "has no class in transformers"));
}

// What the classes' constructors have no value for.
TEST(ReadingRulesTest, MlxFailsWithoutKeysThatAClassNeeds) {
  const auto error = [](const char* type, const json& more) {
    return std::string(
        TryRead(Config(type, more), Profile::kMlx).status().message());
  };
  EXPECT_THAT(error("stablelm", {{"rope_theta", 1e4}}),
              HasSubstr("partial_rotary_factor is missing; mlx-lm's class of "
                        "model_type stablelm needs it"));
  const json glm = {{"rope_theta", 1e6}, {"partial_rotary_factor", 0.5}};
  EXPECT_THAT(error("glm4_moe", glm), HasSubstr("rope_scaling is missing"));
  json whole = glm;
  whole["rope_scaling"] = nullptr;
  EXPECT_EQ(Read(Config("glm4_moe", whole), Profile::kMlx).spec.rotary_dim, 32);
  EXPECT_EQ(
      Read(Config("glm4_moe", json::object()), Profile::kHf).spec.rotary_dim,
      32);
  EXPECT_THAT(error("gpt_neox", {{"rotary_pct", 0.25}}),
              HasSubstr("rotary_emb_base is missing"));
  EXPECT_THAT(error("minimax", {{"rope_theta", 1e4}}),
              HasSubstr("rotary_dim is missing"));
}

TEST(ReadingRulesTest, MlxTakesOneBaseForAllLayersOfOlmo3) {
  json config = Config("olmo3", {{"rope_theta", 1e6},
                                 {"layer_types",
                                  {"sliding_attention", "sliding_attention",
                                   "sliding_attention", "full_attention"}}});
  RopeSource source;
  source.source = ConfigJson{config.dump()};
  source.profile = Profile::kMlx;
  source.layer_type = "sliding_attention";
  const auto rope = ResolveSource(source, 0, MissingLength::kAssumeOriginal);
  ASSERT_TRUE(rope.ok()) << rope.status();
  ExpectSame(rope->inv_freq[16], std::pow(1e6L, -0.5L));
  config.erase("rope_theta");
  EXPECT_THAT(std::string(TryRead(config, Profile::kMlx).status().message()),
              HasSubstr("rope_theta is missing; mlx-lm's class"));
}

TEST(ReadingRulesTest, MlxClassesHaveDefaultsOfTheirOwn) {
  ExpectSame(
      Read(Config("bailing_moe_v3", {{"qk_rope_head_dim", 64}}), Profile::kMlx)
          .inv_freq[16],
      std::pow(6e6L, -0.5L));
  ExpectSame(Read(Config("cohere", json::object()), Profile::kMlx).inv_freq[16],
             std::pow(8e6L, -0.5L));
  ExpectSame(Read(Config("cohere", json::object()), Profile::kHf).inv_freq[16],
             std::pow(5e5L, -0.5L));
}

TEST(ReadingRulesTest, MlxReadsRopeParametersSinceAVersion) {
  const json config = Config("qwen3", {{"head_dim", 64},
                                       {"rope_theta", 1e6},
                                       {"rope_parameters", NewSpelling()}});
  const ResolvedRope now = Read(config, Profile::kMlx);
  ExpectSame(now.inv_freq[16], std::pow(1e6L, -0.5L) / 4);
  const ResolvedRope before = ReadVersion(config, Profile::kMlx, "0.31.3");
  ExpectSame(before.inv_freq[16], std::pow(1e6L, -0.5L));
  EXPECT_TRUE(Warned(before, "rope_parameters"));
}

TEST(ReadingRulesTest, MlxTakesTheBaseAloneForLfm2) {
  const ResolvedRope rope =
      Read(Config("lfm2", {{"rope_parameters", NewSpelling()}}), Profile::kMlx);
  ExpectSame(rope.inv_freq[16], std::pow(5e5L, -0.5L));
  EXPECT_TRUE(Warned(rope, "is read for its rope_theta alone"));
}

TEST(ReadingRulesTest, MlxRotatesTheWholeHeadOfGlm) {
  const json config = Config(
      "glm",
      {{"head_dim", 64}, {"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}});
  EXPECT_EQ(Read(config, Profile::kHf).spec.rotary_dim, 32);
  const ResolvedRope rope = Read(config, Profile::kMlx);
  EXPECT_EQ(rope.spec.rotary_dim, 64);
  EXPECT_TRUE(Warned(rope,
                     "partial_rotary_factor is 0.5, by which 32 channels "
                     "turn; mlx-lm's class of model_type glm rotates the whole "
                     "head of 64"));
}

TEST(ReadingRulesTest, MlxHasBasesOfItsOwnForRemoteClasses) {
  for (const char* type : {"minicpm", "phi3small"}) {
    ExpectSame(Read(Config(type, json::object()), Profile::kMlx).inv_freq[16],
               std::pow(1e6L, -0.5L));
  }
  for (const char* type : {"plamo", "openelm"}) {
    ExpectSame(Read(Config(type, json::object()), Profile::kMlx).inv_freq[16],
               std::pow(1e4L, -0.5L));
  }
  for (const char* type : {"bailing_moe", "exaone", "hunyuan"}) {
    const auto status =
        TryRead(Config(type, json::object()), Profile::kMlx).status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rope_theta is missing; mlx-lm's class"))
        << type;
  }
  const json hybrid = Config(
      "bailing_hybrid", {{"qk_rope_head_dim", 64}, {"qk_nope_head_dim", 128}});
  EXPECT_THAT(std::string(TryRead(hybrid, Profile::kMlx).status().message()),
              HasSubstr("rope_theta is missing; mlx-lm's class"));
}

TEST(ReadingRulesTest, MlxReadsNoBaseForQwensFirstModels) {
  const json config =
      Config("qwen", {{"kv_channels", 64},
                      {"rotary_emb_base", 1e6},
                      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}});
  const ResolvedRope rope = Read(config, Profile::kMlx);
  ExpectSame(rope.inv_freq[16], std::pow(1e4L, -0.5L));
  EXPECT_TRUE(Warned(rope,
                     "rotary_emb_base 1e+06 is not read: mlx-lm's class of "
                     "model_type qwen takes 10000 whatever the file says"));
  EXPECT_TRUE(Warned(rope, "rope_scaling.type linear is not used"));
}

TEST(ReadingRulesTest, MlxScalesSomeClassesLinearlyAlone) {
  for (const char* type : {"nemotron", "deepseek"}) {
    json config =
        Config(type, {{"rope_theta", 1e4},
                      {"partial_rotary_factor", 1.0},
                      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}});
    EXPECT_EQ(Read(config, Profile::kMlx).inv_freq[0], 0.5) << type;
    config["rope_scaling"]["type"] = "dynamic";
    const ResolvedRope rope = Read(config, Profile::kMlx);
    EXPECT_EQ(rope.inv_freq[0], 1) << type;
    EXPECT_TRUE(Warned(rope, "scales linearly or not at all")) << type;
  }
}

TEST(ReadingRulesTest, LlamaCppReadsRopeParametersFirst) {
  const json config = Config(
      "llama", {{"rope_theta", 1e4},
                {"rope_parameters", NewSpelling()},
                {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}});
  const ResolvedRope rope = Read(config, Profile::kLlamaCpp);
  ExpectSame(rope.inv_freq[16], std::pow(5e5L, -0.5L) / 4);
  EXPECT_TRUE(Warned(rope, "rope_scaling {"));
  EXPECT_TRUE(Warned(rope, "rope_parameters, which is given too, replaces it"));
  ExpectSame(Read(config, Profile::kHf).inv_freq[16],
             std::pow(1e4L, -0.5L) / 2);
}

TEST(ReadingRulesTest, VllmScalesDynamicByTheTrainedLengthSinceItsVersion22) {
  json config = Config(
      "llama", {{"rope_theta", 1e4},
                {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}});
  const ResolvedRope absent = Read(config, Profile::kVllm);
  ExpectSame(absent.inv_freq[16], std::pow(1e4L, -0.5L));
  EXPECT_TRUE(Warned(absent, "max_trained_positions, which is absent"));
  // 2 * 8192 / 2048 - (2 - 1) = 7, to the power of 64 / 62.
  config["rope_scaling"]["max_trained_positions"] = 2048;
  ExpectSame(Read(config, Profile::kVllm).inv_freq[16],
             std::pow(1e4L * std::pow(7.0L, 64 / 62.0L), -0.5L));
  // 2 * 2 - (2 - 1) = 3.
  ExpectSame(ReadVersion(config, Profile::kVllm, "0.21.0").inv_freq[16],
             std::pow(1e4L * std::pow(3.0L, 64 / 62.0L), -0.5L));
  config["rope_scaling"]["max_trained_positions"] = 1 << 20;
  const auto status = TryRead(config, Profile::kVllm).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("takes a root of it"));
}

TEST(ReadingRulesTest, VllmReadsYarnsAmplitudeByKeysSinceItsVersion30) {
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 2048},
                     {"attn_factor", 0.5},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 1.0}};
  json config = Config("llama", {{"rope_theta", 1e4}, {"rope_scaling", yarn}});
  const double g = 0.1 * std::log(4.0) + 1;
  const ResolvedRope now = Read(config, Profile::kVllm);
  EXPECT_EQ(now.attention_factor, 1);
  EXPECT_TRUE(Warned(now, "rope_scaling.attn_factor is not read: vLLM"));
  EXPECT_NEAR(ReadVersion(config, Profile::kVllm, "0.29.0").attention_factor,
              0.5 * g, 1e-15);
  config["rope_scaling"]["attention_factor"] = 0.75;
  EXPECT_EQ(Read(config, Profile::kVllm).attention_factor, 0.75);
  config["rope_scaling"]["apply_yarn_scaling"] = false;
  EXPECT_EQ(ReadVersion(config, Profile::kVllm, "0.29.0").attention_factor,
            0.5);
}

TEST(ReadingRulesTest, VllmRefusesTypesThatDiffer) {
  const json config = Config(
      "llama",
      {{"rope_theta", 1e4},
       {"rope_scaling",
        {{"rope_type", "linear"}, {"type", "dynamic"}, {"factor", 2.0}}}});
  const auto status = TryRead(config, Profile::kVllm).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("type is \"dynamic\", and rope_type \"linear\""));
  EXPECT_EQ(Read(config, Profile::kLlamaCpp).inv_freq[0], 0.5);
}

TEST(ReadingRulesTest, TypesThatDifferAreWarnedOfByWhoeverTakesOne) {
  json config = Config(
      "llama",
      {{"rope_theta", 1e4},
       {"rope_scaling",
        {{"rope_type", "linear"}, {"type", "dynamic"}, {"factor", 2.0}}}});
  const ResolvedRope hf = Read(config, Profile::kHf);
  EXPECT_EQ(hf.inv_freq[0], 0.5);
  EXPECT_TRUE(Warned(hf,
                     "rope_scaling.type is \"dynamic\", and rope_type "
                     "\"linear\"; transformers reads rope_type, so that the "
                     "layers turn by linear and not by dynamic"));
  const ResolvedRope mlx = Read(config, Profile::kMlx, 8192);
  EXPECT_EQ(mlx.inv_freq[0], 1);
  EXPECT_TRUE(Warned(mlx, "mlx-lm reads type"));
  // What is published in two names.
  config["rope_scaling"] = {{"rope_type", "default"},
                            {"type", "mrope"},
                            {"mrope_section", {8, 12, 12}}};
  config["model_type"] = "qwen2_vl_text";
  EXPECT_TRUE(Read(config, Profile::kHf).warnings.empty());
}

TEST(ReadingRulesTest, AHeadThatTheClassLeavesOutStopsSomeScalings) {
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 2048}};
  json config =
      Config("mixtral", {{"rope_theta", 1e6}, {"rope_scaling", yarn}});
  EXPECT_TRUE(
      Warned(Read(config, Profile::kHf),
             "head_dim is absent, with which transformers' yarn fails"));
  config["head_dim"] = 64;
  EXPECT_TRUE(Read(config, Profile::kHf).warnings.empty());
  config["rope_scaling"]["rope_type"] = "linear";
  config.erase("head_dim");
  EXPECT_FALSE(Warned(Read(config, Profile::kHf), "head_dim"));
}

TEST(ReadingRulesTest, ABaseByAnotherNameIsSaidBesideWhatIsTaken) {
  EXPECT_TRUE(Warned(
      Read(Config("nomic_bert", {{"rotary_emb_base", 10000}}), Profile::kHf),
      "rotary_emb_base 10000 is not read: transformers takes the base 1000 for "
      "model_type nomic_bert"));
}

TEST(ReadingRulesTest, RemoteClassesHaveRopeTypesOfTheirOwn) {
  const json dict = {{"rope_type", "telechat3-yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 2048}};
  const json tele =
      Config("telechat3", {{"rope_theta", 1e6}, {"rope_scaling", dict}});
  EXPECT_NEAR(Read(tele, Profile::kHf).attention_factor,
              0.07 * std::log(4.0) + 1, 1e-15);
  EXPECT_TRUE(Warned(Read(tele, Profile::kHf), "has no class in transformers"));
  EXPECT_FALSE(
      TryRead(Config("llama", {{"rope_scaling", dict}}), Profile::kHf).ok());

  // gte-base-en-v1.5: base 500000 * 2, frequencies / 2^(2/64).
  const json ntk = {{"type", "ntk"}, {"factor", 2.0}};
  const ResolvedRope gte =
      Read(Config("new", {{"rope_theta", 5e5},
                          {"position_embedding_type", "rope"},
                          {"rope_scaling", ntk}}),
           Profile::kHf);
  ExpectSame(gte.inv_freq[16],
             std::pow(1e6L, -0.5L) / std::pow(2.0L, 1 / 32.0L));
  EXPECT_FALSE(
      TryRead(Config("llama", {{"rope_scaling", ntk}}), Profile::kHf).ok());
}

TEST(ReadingRulesTest, SglangReadsAttnFactorAndNotTeleChatsYarn) {
  json config = Config("llama", {{"rope_theta", 1e4},
                                 {"rope_scaling",
                                  {{"rope_type", "yarn"},
                                   {"factor", 4.0},
                                   {"original_max_position_embeddings", 2048},
                                   {"attn_factor", 0.5},
                                   {"attention_factor", 3.0}}}});
  const double g = 0.1 * std::log(4.0) + 1;
  const ResolvedRope rope = Read(config, kSglang);
  EXPECT_NEAR(rope.attention_factor, 0.5 * g, 1e-15);
  EXPECT_TRUE(Warned(rope, "attention_factor is not read: SGLang"));
  config["rope_scaling"].update({{"mscale", 1.0}, {"mscale_all_dim", 0.0}});
  EXPECT_NEAR(Read(config, kSglang).attention_factor, 0.5 * g, 1e-15);
  config["rope_scaling"]["rope_type"] = "telechat3-yarn";
  EXPECT_THAT(std::string(TryRead(config, kSglang).status().message()),
              HasSubstr("known to SGLang are default, linear, dynamic, yarn"));
  // 2 * 2 - (2 - 1) = 3 at every length.
  config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  ExpectSame(Read(config, kSglang).inv_freq[16],
             std::pow(1e4L * std::pow(3.0L, 64 / 62.0L), -0.5L));
  EXPECT_EQ(FindReader("sglang")->profile, kSglang);
}

TEST(ReadingRulesTest, SglangReadsNoFactorOfProportional) {
  const json config = Config("llama", {{"rope_theta", 1e4},
                                       {"rope_scaling",
                                        {{"rope_type", "proportional"},
                                         {"partial_rotary_factor", 0.5},
                                         {"factor", 4.0}}}});
  EXPECT_EQ(Read(config, Profile::kHf).inv_freq[0], 0.25);
  const ResolvedRope rope = Read(config, kSglang);
  EXPECT_EQ(rope.inv_freq[0], 1);
  EXPECT_TRUE(Warned(rope, "factor 4 is not read: SGLang's proportional"));
}

TEST(ReadingRulesTest, Transformers4DoesNotReadRopeParameters) {
  const json config = Config("llama", {{"rope_parameters", NewSpelling()}});
  ExpectSame(Read(config, Profile::kHf).inv_freq[16],
             std::pow(5e5L, -0.5L) / 4);
  const ResolvedRope before = ReadVersion(config, Profile::kHf, "4.57");
  ExpectSame(before.inv_freq[16], std::pow(1e4L, -0.5L));
  EXPECT_TRUE(Warned(before, "not rope_parameters"));
}

TEST(ReadingRulesTest, KnownTypesGrowWithVersions) {
  json config =
      Config("llama", {{"rope_theta", 1e4},
                       {"rope_scaling",
                        {{"rope_type", "telechat3-yarn"},
                         {"factor", 4.0},
                         {"original_max_position_embeddings", 2048}}}});
  EXPECT_NEAR(Read(config, Profile::kVllm).attention_factor,
              0.07 * std::log(4.0) + 1, 1e-15);
  EXPECT_NEAR(Read(config, Profile::kMlx).attention_factor,
              0.1 * std::log(4.0) + 1, 1e-15);
  EXPECT_FALSE(TryVersion(config, Profile::kVllm, "0.19.1").ok());
  EXPECT_NEAR(ReadVersion(config, Profile::kVllm, "0.29.0").attention_factor,
              0.07 * std::log(4.0) + 1, 1e-15);
  // mlx-lm's commits of 17 and 22 January 2026.
  EXPECT_FALSE(TryVersion(config, Profile::kMlx, "0.30.4").ok());
  EXPECT_TRUE(TryVersion(config, Profile::kMlx, "0.30.5").ok());
  config["rope_scaling"]["rope_type"] = "deepseek_yarn";
  EXPECT_FALSE(TryVersion(config, Profile::kMlx, "0.30.3").ok());
  EXPECT_TRUE(TryVersion(config, Profile::kMlx, "0.30.4").ok());
}

TEST(ReadingRulesTest, MlxTurnsHalfOfMiniMaxM3sHeadUnlessTold) {
  const json config = Config("minimax_m3_vl", {{"rope_theta", 5e6}});
  EXPECT_EQ(Read(config, Profile::kMlx).inv_freq.size(),
            Read(config, Profile::kHf).inv_freq.size() / 2);
}

}  // namespace
}  // namespace posenc::core
