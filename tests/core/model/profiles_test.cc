// One configuration as each project interprets it: profile by profile, and
// against recorded numbers of mlx-lm.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/model/compare.h"
#include "core/model/source.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;

// Head of 64 channels, base 10000, lengths as given.
json Llama(const json& scaling) {
  json config = {{"model_type", "llama"},
                 {"hidden_size", 512},
                 {"num_attention_heads", 8},
                 {"max_position_embeddings", 16384},
                 {"rope_theta", 10000.0}};
  if (!scaling.is_null()) config["rope_scaling"] = scaling;
  return config;
}

json Yarn(const json& more) {
  json scaling = {{"rope_type", "yarn"},
                  {"factor", 4.0},
                  {"original_max_position_embeddings", 4096}};
  scaling.update(more);
  return scaling;
}

json DeepseekV3(const json& scaling) {
  json config = {
      {"model_type", "deepseek_v3"}, {"hidden_size", 7168},
      {"num_attention_heads", 128},  {"qk_rope_head_dim", 64},
      {"qk_nope_head_dim", 128},     {"max_position_embeddings", 163840},
      {"rope_theta", 10000.0}};
  if (!scaling.is_null()) config["rope_scaling"] = scaling;
  return config;
}

TEST(ProfilesTest, AgreeOnPlainRope) {
  for (const Profile profile : kEveryProfile) {
    const ResolvedRope rope = Read(Llama(nullptr), profile);
    ASSERT_EQ(rope.inv_freq.size(), 32u);
    for (int i = 0; i < 32; ++i) {
      ExpectSame(rope.inv_freq[i], std::pow(10000.0L, -i / 32.0L));
    }
    EXPECT_EQ(rope.attention_factor, 1);
    EXPECT_EQ(rope.original_max_position_embeddings, 16384);
  }
}

TEST(ProfilesTest, ReadMlxVectors) {
  const std::filesystem::path folder =
      std::filesystem::path(POSENC_TEST_DATA) / "peers" / "mlx";
  ASSERT_TRUE(std::filesystem::is_directory(folder)) << folder;
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const json peer = json::parse(std::ifstream(entry.path()));
    ASSERT_EQ(peer["kind"], "rope_apply_rows");
    SCOPED_TRACE(peer["name"].get<std::string>());
    json config = {{"model_type", "llama"},
                   {"hidden_size", 4096},
                   {"num_attention_heads", 32},
                   {"head_dim", peer["head_dim"]},
                   {"max_position_embeddings", peer["max_position_embeddings"]},
                   {"rope_theta", peer["rope_theta"]},
                   {"rope_traditional", peer["pairing"] == "interleaved"}};
    if (peer.contains("scaling_config")) {
      config["rope_scaling"] = peer["scaling_config"];
    }
    if (peer["rotary_dim"] != peer["head_dim"]) {
      config["model_type"] = "phi3";
      config["partial_rotary_factor"] =
          peer["rotary_dim"].get<double>() / peer["head_dim"].get<double>();
    }
    const ResolvedRope rope = Read(config, Profile::kMlx);
    EXPECT_EQ(rope.spec.rotary_dim, peer["rotary_dim"]);
    EXPECT_EQ(rope.spec.pairing, peer["pairing"] == "interleaved"
                                     ? Pairing::kInterleaved
                                     : Pairing::kHalfSplit);
    EXPECT_NEAR(rope.attention_factor, peer["amplitude"].get<double>(), 1e-15);
    if (peer.contains("periods")) {
      ASSERT_EQ(rope.inv_freq.size(), peer["periods"].size());
      for (std::size_t i = 0; i < rope.inv_freq.size(); ++i) {
        const float period = peer["periods"][i].get<float>();
        // Some float32 roundings: power, product, blend.
        EXPECT_NEAR(1 / rope.inv_freq[i], period, period * 8 * 0x1p-24) << i;
      }
    }
    ++cases;
  }
  EXPECT_GE(cases, 7);
}

TEST(MlxProfileTest, ReadsTheOldTypeKeyFirst) {
  const ResolvedRope rope = Read(
      Llama({{"rope_type", "default"}, {"type", "linear"}, {"factor", 2.0}}),
      Profile::kMlx);
  EXPECT_EQ(rope.inv_freq[0], 0.5);
}

TEST(MlxProfileTest, Llama3HasDefaults) {
  const ResolvedRope rope =
      Read(Llama({{"rope_type", "llama3"}, {"factor", 8.0}}), Profile::kMlx);
  EXPECT_TRUE(Assumed(rope, "rope_scaling.low_freq_factor", "1"));
  EXPECT_TRUE(Assumed(rope, "rope_scaling.high_freq_factor", "4"));
  EXPECT_TRUE(
      Assumed(rope, "rope_scaling.original_max_position_embeddings", "8192"));
  ExpectSame(rope.inv_freq[31], std::pow(10000.0L, -31 / 32.0L) / 8);
  EXPECT_FALSE(
      TryRead(Llama({{"rope_type", "llama3"}, {"factor", 8.0}}), Profile::kHf)
          .ok());
}

TEST(MlxProfileTest, KnowsItsOwnNamesOfYarn) {
  json scaling = Yarn(json::object());
  const ResolvedRope yarn = Read(Llama(scaling), Profile::kMlx);
  for (const char* name : {"deepseek_yarn", "telechat3-yarn"}) {
    scaling["rope_type"] = name;
    EXPECT_EQ(Read(Llama(scaling), Profile::kMlx).inv_freq, yarn.inv_freq);
  }
  EXPECT_FALSE(TryRead(Llama(scaling), Profile::kHf).ok());
}

TEST(MlxProfileTest, DynamicFollowsTheLength) {
  const json config = Llama({{"rope_type", "dynamic"}, {"factor", 2.0}});
  for (const std::int64_t length : {100, 16384, 32768}) {
    EXPECT_EQ(Read(config, Profile::kMlx, length).inv_freq,
              Read(config, Profile::kHf, length).inv_freq);
  }
  EXPECT_FALSE(TryRead(config, Profile::kMlx).ok());
}

TEST(MlxProfileTest, ClassesWithPlainRopeIgnoreScaling) {
  json config = Llama({{"rope_type", "linear"}, {"factor", 2.0}});
  config["model_type"] = "gemma2";
  const ResolvedRope rope = Read(config, Profile::kMlx);
  EXPECT_EQ(rope.inv_freq[0], 1);
  EXPECT_TRUE(Warned(rope, "gemma2 does not scale"));
}

TEST(MlxProfileTest, TakesOnePosition) {
  json config = Llama({{"type", "mrope"}, {"mrope_section", {8, 12, 12}}});
  config["model_type"] = "qwen2_vl";
  EXPECT_EQ(Read(config, Profile::kHf).axes(), 3);
  const ResolvedRope rope = Read(config, Profile::kMlx);
  EXPECT_EQ(rope.axes(), 1);
  EXPECT_TRUE(Warned(rope, "mrope_section is not read"));
}

TEST(MlxProfileTest, ProportionalIsGemmas) {
  const json config = Llama({{"rope_type", "proportional"},
                             {"partial_rotary_factor", 0.25},
                             {"factor", 2.0}});
  const ResolvedRope rope = Read(config, Profile::kMlx);
  ASSERT_EQ(rope.inv_freq.size(), 32u);
  ExpectSame(rope.inv_freq[7], std::pow(10000.0L, -7 / 32.0L) / 2);
  EXPECT_EQ(rope.inv_freq[8], 0);
}

TEST(VllmProfileTest, StaticNtkSpreadsTheFactor) {
  // Base theta * s, then each frequency over s^(2/d).
  const ResolvedRope rope =
      Read(Llama({{"rope_type", "ntk"}, {"factor", 4.0}}), Profile::kVllm);
  for (int i = 0; i < 32; ++i) {
    ExpectSame(rope.inv_freq[i],
               std::pow(40000.0L, -i / 32.0L) / std::pow(4.0L, 1 / 32.0L));
  }
  const ResolvedRope mixed =
      Read(Llama({{"rope_type", "ntk"}, {"factor", 4.0}, {"mixed_b", 0.625}}),
           Profile::kVllm);
  const long double a = std::log(4.0L) / std::pow(32.0L, 0.625L);
  for (int i = 0; i < 32; ++i) {
    ExpectSame(mixed.inv_freq[i], std::pow(10000.0L, -i / 32.0L) /
                                      std::exp(a * std::pow(i + 1.0L, 0.625L)));
  }
  // The last pair is then interpolated fully: divided by s.
  ExpectSame(mixed.inv_freq[31], std::pow(10000.0L, -31 / 32.0L) / 4);
}

TEST(VllmProfileTest, TakesAShareWhereTransformersIgnoresIt) {
  json config = Llama(nullptr);
  config["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(Read(config, Profile::kHf).spec.rotary_dim, 64);
  EXPECT_EQ(Read(config, Profile::kVllm).spec.rotary_dim, 32);
}

TEST(LlamaCppProfileTest, HasNoDynamicScaling) {
  const ResolvedRope rope = Read(
      Llama({{"rope_type", "dynamic"}, {"factor", 2.0}}), Profile::kLlamaCpp);
  EXPECT_EQ(rope.inv_freq, Read(Llama(nullptr), Profile::kHf).inv_freq);
  EXPECT_TRUE(Warned(rope, "no dynamic scaling"));
}

TEST(LlamaCppProfileTest, SaysThatItsConverterReordersRows) {
  const ResolvedRope rope = Read(Llama(nullptr), Profile::kLlamaCpp);
  EXPECT_EQ(rope.spec.pairing, Pairing::kHalfSplit);
  EXPECT_TRUE(Assumed(rope, "pairing", "half-split"));
  json qwen = Llama(nullptr);
  qwen["model_type"] = "qwen2";
  EXPECT_FALSE(
      Assumed(Read(qwen, Profile::kLlamaCpp), "pairing", "half-split"));
}

TEST(LlamaCppProfileTest, NeedsTheOriginalLength) {
  json scaling = Yarn(json::object());
  scaling.erase("original_max_position_embeddings");
  const auto details =
      GetErrorDetails(TryRead(Llama(scaling), Profile::kLlamaCpp).status());
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->reason, ErrorReason::kModelConfigInvalid);
  EXPECT_TRUE(TryRead(Llama(scaling), Profile::kHf).ok());
}

TEST(ProfilesTest, RefuseWhatTheirProjectDoesNotKnow) {
  const json llama3 = Llama({{"rope_type", "llama3"},
                             {"factor", 8.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 8192}});
  for (const Profile profile :
       {Profile::kGptOss, Profile::kDeepseek, Profile::kMistral}) {
    const absl::Status status = TryRead(llama3, profile).status();
    const auto details = GetErrorDetails(status);
    ASSERT_TRUE(details.has_value()) << status;
    EXPECT_EQ(details->reason, ErrorReason::kModelConfigInvalid);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rope_scaling.rope_type is \"llama3\"; known to"));
  }
  for (const Profile profile :
       {Profile::kHf, Profile::kVllm, Profile::kLlamaCpp, Profile::kMlx}) {
    EXPECT_TRUE(TryRead(llama3, profile).ok());
  }
}

TEST(ProfilesTest, WarnOfModelsThatTheyDoNotRun) {
  EXPECT_TRUE(Warned(Read(Llama(nullptr), Profile::kGptOss),
                     "llama is not a model of gpt-oss's"));
  EXPECT_TRUE(Warned(Read(Llama(nullptr), Profile::kDeepseek),
                     "is not a model of DeepSeek's"));
  EXPECT_FALSE(Warned(Read(DeepseekV3(nullptr), Profile::kDeepseek),
                      "is not a model of"));
}

TEST(ProfilesTest, OnlyTransformersTakesBetaZeroForAbsent) {
  const json config = Llama(Yarn({{"beta_fast", 0}, {"beta_slow", 0}}));
  const ResolvedRope hf = Read(config, Profile::kHf);
  EXPECT_TRUE(Assumed(hf, "rope_scaling.beta_fast", "32"));
  for (const Profile profile : {Profile::kVllm, Profile::kMlx}) {
    const absl::Status status = TryRead(config, profile).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("divides by it"));
  }
}

TEST(GptOssProfileTest, RefusesARampBeyondThePairs) {
  // Both ends of the ramp are at pair 0 or before: its code asserts.
  const absl::Status status =
      TryRead(Llama(Yarn({{"beta_fast", 4000.0}})), Profile::kGptOss).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("0 < low < high"));
}

TEST(MistralProfileTest, PairsAsMistralsOwnWeights) {
  json config = Llama(nullptr);
  config["model_type"] = "mistral";
  EXPECT_EQ(Read(config, Profile::kHf).spec.pairing, Pairing::kHalfSplit);
  const ResolvedRope rope = Read(config, Profile::kMistral);
  EXPECT_EQ(rope.spec.pairing, Pairing::kInterleaved);
  EXPECT_TRUE(Assumed(rope, "pairing", "interleaved"));
}

TEST(ContradictionsTest, AreWarnings) {
  json config = Llama(Yarn({{"rope_theta", 5e5}, {"factor", 8.0}}));
  config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 3.0}};
  const ResolvedRope rope = Read(config, Profile::kHf);
  EXPECT_EQ(rope.spec.rope_theta, 5e5);
  EXPECT_TRUE(Warned(rope,
                     "rope_theta is 5e+05, and rope_theta of the model "
                     "10000; the former is used"));
  EXPECT_TRUE(Warned(rope,
                     "factor is 8, and max_position_embeddings 16384 / "
                     "original_max_position_embeddings 4096 is 4"));
  EXPECT_TRUE(Warned(rope, "they differ"));
  json width = Llama(nullptr);
  width["model_type"] = "minimax";
  width["rotary_dim"] = 32;
  width["partial_rotary_factor"] = 0.25;
  EXPECT_TRUE(Warned(Read(width, Profile::kHf),
                     "rotary_dim is 32, and head_dim 64; transformers reads "
                     "the latter"));
  width["model_type"] = "minimax_m3_vl";
  width["head_dim"] = 64;
  EXPECT_TRUE(Warned(Read(width, Profile::kHf),
                     "rotary_dim is 32, and partial_rotary_factor 0.25 of "
                     "head_dim 64 is 16"));
  EXPECT_TRUE(Warned(
      Read(Llama({{"rope_type", "linear"}, {"factor", 0.5}}), Profile::kHf),
      "below 1"));
  EXPECT_TRUE(Warned(Read(Llama(Yarn({{"sharpness", 2}})), Profile::kVllm),
                     "rope_scaling.sharpness is not read: vLLM"));
}

TEST(TrainedLengthTest, IsTheOriginalOrElseTheMaximum) {
  EXPECT_EQ(Read(Llama(Yarn(json::object())), Profile::kHf)
                .original_max_position_embeddings,
            4096);
  EXPECT_EQ(Read(Llama({{"rope_type", "dynamic"}, {"factor", 2.0}}),
                 Profile::kHf, 100)
                .original_max_position_embeddings,
            16384);
  json none = Llama(nullptr);
  none.erase("max_position_embeddings");
  EXPECT_EQ(Read(none, Profile::kHf).original_max_position_embeddings, 0);
  const RopeSpec spec = {.rotary_dim = 64,
                         .pairing = Pairing::kHalfSplit,
                         .scaling = DynamicNtkScaling{
                             .factor = 2, .max_position_embeddings = 2048}};
  const auto rope = ResolveSpec(spec, 64, 10, MissingLength::kError);
  ASSERT_TRUE(rope.ok());
  EXPECT_EQ(rope->original_max_position_embeddings, 2048);
}

// Every pair of profiles is compared without a contradiction: they are equal
// exactly if nothing is explained, and exchanged they give the same numbers.
TEST(CompareProfilesTest, ExplainsEveryPair) {
  const json configs[] = {
      Llama(Yarn({{"attn_factor", 0.5}, {"mscale", 0.7}})),
      DeepseekV3(
          Yarn({{"factor", 40.0}, {"mscale", 1.0}, {"mscale_all_dim", 1.0}}))};
  for (const json& config : configs) {
    for (const Profile one : kEveryProfile) {
      for (const Profile other : kEveryProfile) {
        const auto a = TryRead(config, one), b = TryRead(config, other);
        if (!a.ok() || !b.ok()) continue;
        const RopeDifference there = CompareRopes(*a, *b);
        const RopeDifference back = CompareRopes(*b, *a);
        EXPECT_EQ(there.equal, there.explanations.empty());
        EXPECT_EQ(there.equal, back.equal);
        EXPECT_EQ(there.first_diverging_position,
                  back.first_diverging_position);
        EXPECT_EQ(there.max_relative_frequency_difference,
                  back.max_relative_frequency_difference);
        EXPECT_TRUE(there.equal || one != other);
      }
    }
  }
  // Named ones: truncation, amplitude, pairing of the output.
  EXPECT_THAT(CompareRopes(Read(configs[0], Profile::kGptOss),
                           Read(configs[0], Profile::kMlx))
                  .explanations,
              Contains(HasSubstr("not truncated")));
  EXPECT_THAT(CompareRopes(Read(configs[0], Profile::kHf),
                           Read(configs[0], Profile::kMlx))
                  .explanations,
              Contains(HasSubstr("amplitude: ")));
  EXPECT_THAT(CompareRopes(Read(configs[1], Profile::kHf),
                           Read(configs[1], Profile::kVllm))
                  .explanations,
              Contains(HasSubstr("interleaved in and half-split out against "
                                 "interleaved")));
}

}  // namespace
}  // namespace posenc::core
