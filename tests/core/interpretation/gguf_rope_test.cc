// The encodings of GGUF files, as llama.cpp reads their keys and tensors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fixtures/core/gguf_bytes.h"

namespace posenc::core::interpretation {
namespace {

using testing::HasSubstr;

TEST(GgufRopeTest, ArchitecturesArePairedAsLlamaCppPairsThem) {
  for (const char* name : {"llama", "glm4", "nanbeige", "graniteswitch"}) {
    EXPECT_EQ(PairingOf(name, false), GgufPairing::kInterleaved) << name;
  }
  for (const char* name : {"qwen3", "glm4moe", "hunyuan_vl", "eurobert",
                           "gemma4-assistant", "hy_v3", "minimax-m3"}) {
    EXPECT_EQ(PairingOf(name, false), GgufPairing::kHalfSplit) << name;
  }
  for (const char* name : {"qwen2vl", "glm4", "glm4moe", "hunyuan_vl"}) {
    EXPECT_EQ(PairingOf(name, true), GgufPairing::kSections) << name;
  }
  for (const char* name : {"qwen3vl", "qwen35moe", "qwen3tts"}) {
    EXPECT_EQ(PairingOf(name, true), GgufPairing::kInterleavedSections) << name;
  }
  for (const char* name :
       {"gpt2", "rwkv6", "nemotron_h_moe", "wavtokenizer-dec"}) {
    EXPECT_EQ(PairingOf(name, false), GgufPairing::kNone) << name;
  }
  EXPECT_EQ(PairingOf("not-known", false), GgufPairing::kUnknown);
}

TEST(GgufRopeTest, AbsentKeysHaveLlamaCppsDefaults) {
  const GgufRope rope = Read(File({Str("general.architecture", "qwen2"),
                                   U32("qwen2.embedding_length", 512),
                                   U32("qwen2.attention.head_count", 8)}));
  EXPECT_EQ(rope.Base(), 10000);
  EXPECT_EQ(rope.RotaryDim(), 64);
  EXPECT_EQ(rope.ScalingType(), "linear");
  const auto resolved = ResolveGguf(rope, 8192, false);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->inv_freq[0], 1);
  EXPECT_NEAR(resolved->inv_freq[16], 0.01, 1e-17);
  EXPECT_EQ(resolved->attention_factor, 1);
}

TEST(GgufRopeTest, NumbersOfOtherTypesCountWhereTheyAreExact) {
  std::vector<std::string> keys = Llama();
  keys[4] = Key("llama.rope.dimension_count", 12, Bytes(64.0));
  keys[5] = Key("llama.rope.freq_base", 10, Bytes<std::uint64_t>(1000000));
  const GgufRope rope = Read(File(keys));
  EXPECT_EQ(rope.RotaryDim(), 64);
  EXPECT_EQ(rope.Base(), 1000000);
  keys[4] = F32("llama.rope.dimension_count", 64.5);
  EXPECT_THAT(ErrorOf(File(keys)),
              HasSubstr("llama.rope.dimension_count is 64.5; it must be a "
                        "whole number"));
}

// YaRN as in ggml (rope_yarn): a ramp between whole pairs, and a factor 1 + 0.1
// ln(s) on cosines and sines.
TEST(GgufRopeTest, YarnIsMixedByARampOfWholePairs) {
  std::vector<std::string> keys = Llama();
  keys.push_back(Str("llama.rope.scaling.type", "yarn"));
  keys.push_back(F32("llama.rope.scaling.factor", 4));
  keys.push_back(U32("llama.rope.scaling.original_context_length", 8192));
  const auto rope = ResolveGguf(Read(File(keys)), 8192, false);
  ASSERT_TRUE(rope.ok()) << rope.status();
  const auto pair = [](double turns) {
    return 64 * std::log(8192 / (turns * 2 * M_PI)) / (2 * std::log(500000));
  };
  const double low = std::floor(pair(32)), high = std::ceil(pair(1));
  for (int i = 0; i < 32; ++i) {
    const double w = std::pow(500000, -i / 32.0);
    const double share = std::clamp((i - low) / (high - low), 0.0, 1.0);
    const double expected = w / 4 * share + w * (1 - share);
    EXPECT_NEAR(rope->inv_freq[i], expected, 1e-14 * expected) << i;
  }
  EXPECT_NEAR(rope->attention_factor, 1 + 0.1 * std::log(4), 1e-15);
}

TEST(GgufRopeTest, FactorTensorsDivideFrequencies) {
  std::string file =
      Padded(File(Llama(), {Tensor("rope_freqs.weight", {32}, 0, 0)}));
  for (int i = 0; i < 32; ++i) file += Bytes<float>(i < 16 ? 1 : 8);
  const GgufRope gguf = Read(file);
  ASSERT_EQ(gguf.rope_freqs.size(), 32);
  const auto rope = ResolveGguf(gguf, 8192, false);
  ASSERT_TRUE(rope.ok());
  EXPECT_DOUBLE_EQ(rope->inv_freq[16], std::pow(500000, -0.5) / 8);
  EXPECT_DOUBLE_EQ(rope->inv_freq[8], std::pow(500000, -0.25));
}

// "" or the error of resolving a layer.
std::string ErrorOfLayer(const GgufRope& gguf, bool sliding) {
  return std::string(ResolveGguf(gguf, 8192, sliding).status().message());
}

TEST(GgufRopeTest, FactorsHaveTheLengthThatLlamaCppWants) {
  struct Row {
    const char* architecture;
    int full, sliding, factors;  // channels, channels, values
    const char* full_error;
    const char* sliding_error;
  };
  const Row rows[] = {
      {"llama", 64, 64, 32, "", ""},
      {"llama", 64, 64, 31, "has 31 values, and 32 pairs", "has 31 values"},
      {"llama", 64, 128, 32, "", "has 32 values, and 64 pairs turn"},
      {"llama", 64, 32, 32, "", ""},
      {"gemma4", 128, 64, 64, "", ""},
      // The widest layers decide; layers with full attention use the first
      // factors.
      {"laguna", 64, 128, 64, "", ""},
      {"laguna", 64, 128, 32, "has 32 values, and 64 pairs", "has 32 values"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(absl::StrCat(row.architecture, " ", row.factors));
    GgufRope gguf;
    gguf.architecture = row.architecture;
    gguf.key_length = 128;
    gguf.dimension_count = row.full;
    gguf.dimension_count_swa = row.sliding;
    gguf.rope_freqs.assign(row.factors, 2);
    EXPECT_THAT(ErrorOfLayer(gguf, false), HasSubstr(row.full_error));
    EXPECT_THAT(ErrorOfLayer(gguf, true), HasSubstr(row.sliding_error));
    EXPECT_EQ(ErrorOfLayer(gguf, false).empty(), *row.full_error == '\0');
    EXPECT_EQ(ErrorOfLayer(gguf, true).empty(), *row.sliding_error == '\0');
  }
}

TEST(GgufRopeTest, FullLayersOfStep35RotateHalfAndAloneHaveFactors) {
  std::vector<std::string> keys = {Str("general.architecture", "step35"),
                                   U32("step35.attention.key_length", 128),
                                   U32("step35.rope.dimension_count", 128),
                                   U32("step35.attention.sliding_window", 512),
                                   F32("step35.rope.freq_base", 5000000),
                                   F32("step35.rope.freq_base_swa", 10000)};
  GgufRope gguf = Read(File(keys));
  gguf.rope_freqs.assign(64, 2);
  const auto full = ResolveGguf(gguf, 8192, false);
  const auto sliding = ResolveGguf(gguf, 8192, true);
  ASSERT_TRUE(full.ok() && sliding.ok()) << full.status() << sliding.status();
  ASSERT_EQ(full->inv_freq.size(), 32);
  ASSERT_EQ(sliding->inv_freq.size(), 64);
  EXPECT_EQ(full->inv_freq[0], 0.5);
  EXPECT_EQ(sliding->inv_freq[0], 1);
}

TEST(GgufRopeTest, DefaultsOfAbsentKeysAreSaid) {
  GgufRope gguf = Read(File({Str("general.architecture", "not-known"),
                             U32("not-known.attention.key_length", 64)}));
  const auto fields = [&gguf](bool sliding) {
    std::vector<std::string> said;
    const auto rope = ResolveGguf(gguf, 8192, sliding);
    for (const Assumption& one : rope->assumptions) said.push_back(one.field);
    return said;
  };
  using testing::ElementsAre;
  EXPECT_THAT(fields(false),
              ElementsAre("pairing", "not-known.rope.freq_base"));
  gguf.architecture = "gemma3";
  gguf.pairing = GgufPairing::kHalfSplit;
  gguf.freq_base = 1e6;
  gguf.sliding_window = 1024;
  EXPECT_THAT(fields(false), ElementsAre());
  EXPECT_THAT(fields(true), ElementsAre("gemma3.rope.freq_base_swa"));
}

// Returns an encoding of `pairs` pairs.
GgufRope WithSections(const std::string& architecture, int pairs,
                      std::vector<double> sections) {
  GgufRope gguf;
  gguf.architecture = architecture;
  gguf.pairing = PairingOf(architecture, true);
  gguf.key_length = 256;
  gguf.dimension_count = 2 * pairs;
  gguf.sections = std::move(sections);
  return gguf;
}

TEST(GgufRopeTest, SectionsAreAxes) {
  struct Row {
    const char* architecture;
    int pairs;
    std::vector<double> sections;
    AxisAssignment assignment;
    std::vector<std::int32_t> axes;
    std::vector<int> still;  // pairs of the fourth position
  };
  const Row rows[] = {
      {"qwen35",
       32,
       {11, 11, 10, 0},
       AxisAssignment::kInterleaved,
       {11, 11, 10},
       {}},
      {"qwen3vl",
       32,
       {11, 11, 9, 0},
       AxisAssignment::kInterleaved,
       {12, 11, 9},
       {29}},
      {"qwen2vl",
       64,
       {16, 24, 24, 0},
       AxisAssignment::kSectioned,
       {16, 24, 24},
       {}},
      {"glm4", 4, {1, 1, 1, 1}, AxisAssignment::kSectioned, {1, 1, 2}, {3}}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.architecture);
    const GgufRope gguf =
        WithSections(row.architecture, row.pairs, row.sections);
    auto rope = ResolveGguf(gguf, 8192, false);
    ASSERT_TRUE(rope.ok()) << rope.status();
    const std::vector<double> plain = rope->inv_freq;
    ASSERT_TRUE(SetGgufAxes(gguf, &*rope).ok());
    EXPECT_EQ(rope->spec.axes->assignment, row.assignment);
    EXPECT_EQ(rope->spec.axes->sections, row.axes);
    for (int i = 0; i < row.pairs; ++i) {
      const bool is_still =
          std::count(row.still.begin(), row.still.end(), i) > 0;
      EXPECT_EQ(rope->inv_freq[i], is_still ? 0 : plain[i]) << i;
    }
    const auto again =
        ResolveSpec(rope->spec, 256, std::nullopt, MissingLength::kError);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->inv_freq, rope->inv_freq);
    EXPECT_EQ(again->axes(), 3);
  }
}

TEST(GgufRopeTest, SectionsThatLlamaCppRefusesAreNamed) {
  const auto error = [](const char* architecture,
                        std::vector<double> sections) {
    const GgufRope gguf = WithSections(architecture, 32, std::move(sections));
    auto rope = ResolveGguf(gguf, 8192, false);
    EXPECT_TRUE(rope.ok()) << rope.status();
    return std::string(SetGgufAxes(gguf, &*rope).message());
  };
  EXPECT_THAT(error("qwen35", {11, 11, 10}),
              HasSubstr("key qwen35.rope.dimension_sections has 3 elements; "
                        "llama.cpp wants 4"));
  EXPECT_THAT(error("qwen2vl", {}),
              HasSubstr("is absent or empty, and llama.cpp wants 4 elements"));
  EXPECT_EQ(error("qwen2", {}), "");
  EXPECT_THAT(error("qwen2vl", {8, 8, 8, 8, 0}), HasSubstr("has 5 elements"));
  EXPECT_THAT(error("qwen2vl", {8, 8, 8, 0}),
              HasSubstr("gives 24 of the 32 pairs an axis"));
  EXPECT_THAT(error("qwen35", {11.5, 11, 10, 0}),
              HasSubstr("has an element 11.5"));
  EXPECT_THAT(error("qwen35", {-1, 11, 10, 0}), HasSubstr("has an element -1"));
  EXPECT_THAT(error("qwen35", {0, 0, 0, 32}),
              HasSubstr("gives none of the first three axes a pair"));
  // An architecture without sections does not read them.
  EXPECT_EQ(error("llama", {1, 2, 3}), "");
}

TEST(GgufRopeTest, OneSectionStandsForAllFour) {
  std::vector<std::string> keys = Llama();
  keys[0] = Str("general.architecture", "qwen2vl");
  keys.push_back(U32("qwen2vl.rope.dimension_sections", 16));
  EXPECT_EQ(Read(File(keys)).sections, (std::vector<double>{16, 16, 16, 16}));
}

TEST(GgufRopeTest, SlidingLayersOfGemma3TurnByTheBaseOfLlamaCpp) {
  GgufRope gguf;
  gguf.architecture = "gemma3";
  gguf.pairing = PairingOf("gemma3", false);
  gguf.key_length = 256;
  gguf.freq_base = 1e6;
  const auto last = [&gguf](bool sliding) {
    return ResolveGguf(gguf, 8192, sliding)->inv_freq[127];
  };
  // Without a window, no layer has sliding attention.
  EXPECT_EQ(last(true), last(false));
  gguf.sliding_window = 1024;
  EXPECT_NEAR(last(true), std::pow(1e4, -127 / 128.0), 1e-18);
  EXPECT_NEAR(last(false), std::pow(1e6, -127 / 128.0), 1e-20);
  gguf.freq_base_swa = 2e4;
  EXPECT_NEAR(last(true), std::pow(2e4, -127 / 128.0), 1e-18);
}

// A file of heads with 128 channels, base 5e5 and YaRN by 32.
GgufRope Windowed(const std::string& architecture) {
  GgufRope gguf;
  gguf.architecture = architecture;
  gguf.key_length = 128;
  gguf.context_length = 131072;
  gguf.sliding_window = 512;
  gguf.freq_base = 5e5;
  gguf.scaling_type = "yarn";
  gguf.factor = 32;
  gguf.original_context_length = 4096;
  return gguf;
}

TEST(GgufRopeTest, SlidingLayersAreScaledWhereLlamaCppScalesThem) {
  struct Row {
    const char* architecture;
    double base;
    bool scaled;
  };
  for (const Row& row : {Row{"olmo2", 5e5, false}, Row{"laguna", 5e5, false},
                         Row{"mellum", 5e5, false}, Row{"step35", 1e4, false},
                         Row{"mimo2", 1e4, false}, Row{"plamo3", 1e4, false},
                         Row{"gemma3", 1e4, false}, Row{"gemma2", 5e5, true},
                         Row{"gpt-oss", 5e5, true}, Row{"cohere2", 5e5, true},
                         Row{"modern-bert", 1e4, true}}) {
    SCOPED_TRACE(row.architecture);
    const auto rope = ResolveGguf(Windowed(row.architecture), 8192, true);
    ASSERT_TRUE(rope.ok()) << rope.status();
    const double last = std::pow(row.base, -63 / 64.0);
    EXPECT_NEAR(rope->inv_freq[63], row.scaled ? last / 32 : last, 1e-12);
    EXPECT_EQ(rope->attention_factor > 1, row.scaled);
    const auto full = ResolveGguf(Windowed(row.architecture), 8192, false);
    EXPECT_GT(full->attention_factor, 1);
  }
}

TEST(GgufRopeTest, ATenthOfMistral4sMultiplierIsInTheFile) {
  const auto amplitude = [](const std::string& architecture, float stored) {
    GgufRope gguf = Windowed(architecture);
    gguf.yarn_log_multiplier = stored;
    return ResolveGguf(gguf, 8192, false)->attention_factor;
  };
  EXPECT_EQ(amplitude("mistral4", 0.1F), 1);
  EXPECT_EQ(amplitude("mistral3", 1), 1);
  EXPECT_EQ(amplitude("deepseek2", 0.1F), 1);
  EXPECT_GT(amplitude("mistral4", 0.05F), 1);
}

TEST(GgufRopeTest, ArchitecturesThatReadNoBetasKeepLlamaCppsOwn) {
  const auto fast = [](const std::string& architecture) {
    return Read(File({Str("general.architecture", architecture),
                      F32(architecture + ".rope.scaling.yarn_beta_fast", 1)}))
        .yarn_beta_fast;
  };
  EXPECT_EQ(fast("deepseek2"), std::nullopt);
  EXPECT_EQ(fast("qwen3moe"), std::nullopt);
  EXPECT_EQ(fast("grok"), 1);
}

TEST(GgufRopeTest, AlphaRaisesTheBaseOfHunyuan) {
  const auto base = [](const std::string& architecture) {
    return Read(File({Str("general.architecture", architecture),
                      U32(architecture + ".attention.key_length", 128),
                      F32(architecture + ".rope.freq_base", 10000),
                      F32(architecture + ".rope.scaling.alpha", 1000)}))
        .Base();
  };
  const double raised = 1e4 * std::pow(1000, 128 / 126.0);
  EXPECT_DOUBLE_EQ(base("hunyuan_vl"), raised);
  EXPECT_DOUBLE_EQ(base("hunyuan-dense"), raised);
  EXPECT_EQ(base("llama"), 10000);
}

}  // namespace
}  // namespace posenc::core::interpretation
