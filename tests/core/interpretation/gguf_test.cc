// The reader of GGUF headers: its results, and its errors for damaged files.

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
#include "core/interpretation/formats/gguf_file.h"
#include "core/interpretation/formats/gguf_rope.h"

namespace posenc::core::interpretation {
namespace {

using testing::HasSubstr;

template <typename T>
std::string Bytes(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
std::string Text(const std::string& text) {
  return Bytes<std::uint64_t>(text.size()) + text;
}
std::string Key(const std::string& name, std::uint32_t type,
                const std::string& value) {
  return Text(name) + Bytes(type) + value;
}
std::string U32(const std::string& name, std::uint32_t value) {
  return Key(name, 4, Bytes(value));
}
std::string F32(const std::string& name, float value) {
  return Key(name, 6, Bytes(value));
}
std::string Str(const std::string& name, const std::string& value) {
  return Key(name, 8, Text(value));
}
std::string Head(std::uint32_t version, std::uint64_t tensors,
                 std::uint64_t keys) {
  return "GGUF" + Bytes(version) + Bytes(tensors) + Bytes(keys);
}
std::string File(const std::vector<std::string>& keys,
                 const std::vector<std::string>& tensors = {},
                 std::uint32_t version = 3) {
  std::string file = Head(version, tensors.size(), keys.size());
  for (const std::string& key : keys) file += key;
  for (const std::string& tensor : tensors) file += tensor;
  return file;
}
std::string Tensor(const std::string& name,
                   const std::vector<std::uint64_t>& shape, std::uint32_t type,
                   std::uint64_t offset) {
  std::string tensor = Text(name) + Bytes<std::uint32_t>(shape.size());
  for (const std::uint64_t extent : shape) tensor += Bytes(extent);
  return tensor + Bytes(type) + Bytes(offset);
}
std::string Padded(std::string bytes, std::size_t alignment = 32) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  return bytes;
}

std::vector<std::string> Llama() {
  return {Str("general.architecture", "llama"),
          U32("llama.embedding_length", 512),
          U32("llama.attention.head_count", 8),
          U32("llama.context_length", 8192),
          U32("llama.rope.dimension_count", 64),
          F32("llama.rope.freq_base", 500000)};
}

// Returns the error of reading header and keys, or "".
std::string ErrorOf(const std::string& bytes) {
  const ByteSource source = SourceOf(bytes);
  const auto file = ReadGguf(source);
  if (!file.ok()) return std::string(file.status().message());
  const auto rope = ReadGgufRope(*file, source);
  if (!rope.ok()) return std::string(rope.status().message());
  return "";
}

GgufRope Read(const std::string& bytes) {
  const ByteSource source = SourceOf(bytes);
  const auto file = ReadGguf(source);
  EXPECT_TRUE(file.ok()) << file.status();
  auto rope = ReadGgufRope(*file, source);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return *std::move(rope);
}

TEST(GgufTest, VersionsTwoAndThreeReadAlike) {
  for (const std::uint32_t version : {2u, 3u}) {
    const GgufRope rope = Read(File(Llama(), {}, version));
    EXPECT_EQ(rope.architecture, "llama");
    EXPECT_EQ(rope.Base(), 500000);
    EXPECT_EQ(rope.RotaryDim(), 64);
    EXPECT_EQ(rope.context_length, 8192);
    EXPECT_EQ(rope.pairing, GgufPairing::kInterleaved);
  }
}

TEST(GgufTest, KeysThatSayNothingOfRotationArePassedOver) {
  std::vector<std::string> keys = Llama();
  std::string tokens = Bytes<std::uint32_t>(8) + Bytes<std::uint64_t>(20000);
  for (int i = 0; i < 20000; ++i) tokens += Text(absl::StrCat("token", i));
  keys.insert(keys.begin(), Key("tokenizer.ggml.tokens", 9, tokens));
  keys.insert(keys.begin(),
              Key("tokenizer.ggml.scores", 9,
                  Bytes<std::uint32_t>(6) + Bytes<std::uint64_t>(50000) +
                      std::string(200000, 'x')));
  keys.insert(keys.begin(),
              Str("general.description", std::string(99999, 'y')));
  EXPECT_EQ(Read(File(keys)).Base(), 500000);
}

TEST(GgufTest, KeysThatAreWrittenReadAsTheyWere) {
  GgufFile file;
  file.keys["general.architecture"] = std::string("llama");
  file.keys["llama.rope.freq_base"] = 500000.5;
  file.keys["llama.rope.dimension_count"] = std::uint64_t{1} << 60;
  file.keys["llama.rope.a"] = std::int64_t{-3};
  file.keys["llama.rope.scaling.finetuned"] = true;
  file.keys["llama.rope.dimension_sections"] =
      std::vector<double>{16, 24.5, -24, 0};
  file.keys["llama.rope.none"] = std::vector<double>();
  const std::string bytes = WriteGgufKeys(file);
  const auto read = ReadGguf(SourceOf(bytes));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->keys, file.keys);
  EXPECT_TRUE(read->tensors.empty());
}

TEST(GgufTest, ArchitecturesArePairedAsLlamaCppPairsThem) {
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

TEST(GgufTest, AbsentKeysHaveLlamaCppsDefaults) {
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

TEST(GgufTest, NumbersOfOtherTypesCountWhereTheyAreExact) {
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
TEST(GgufTest, YarnIsMixedByARampOfWholePairs) {
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

TEST(GgufTest, FactorTensorsDivideFrequencies) {
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

TEST(GgufTest, FactorsHaveTheLengthThatLlamaCppWants) {
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

TEST(GgufTest, FullLayersOfStep35RotateHalfAndAloneHaveFactors) {
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

TEST(GgufTest, DefaultsOfAbsentKeysAreSaid) {
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

TEST(GgufTest, SectionsAreAxes) {
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

TEST(GgufTest, SectionsThatLlamaCppRefusesAreNamed) {
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

TEST(GgufTest, OneSectionStandsForAllFour) {
  std::vector<std::string> keys = Llama();
  keys[0] = Str("general.architecture", "qwen2vl");
  keys.push_back(U32("qwen2vl.rope.dimension_sections", 16));
  EXPECT_EQ(Read(File(keys)).sections, (std::vector<double>{16, 16, 16, 16}));
}

TEST(GgufTest, SlidingLayersOfGemma3TurnByTheBaseOfLlamaCpp) {
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

TEST(GgufTest, SlidingLayersAreScaledWhereLlamaCppScalesThem) {
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

TEST(GgufTest, ATenthOfMistral4sMultiplierIsInTheFile) {
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

TEST(GgufTest, ArchitecturesThatReadNoBetasKeepLlamaCppsOwn) {
  const auto fast = [](const std::string& architecture) {
    return Read(File({Str("general.architecture", architecture),
                      F32(architecture + ".rope.scaling.yarn_beta_fast", 1)}))
        .yarn_beta_fast;
  };
  EXPECT_EQ(fast("deepseek2"), std::nullopt);
  EXPECT_EQ(fast("qwen3moe"), std::nullopt);
  EXPECT_EQ(fast("grok"), 1);
}

TEST(GgufTest, AlphaRaisesTheBaseOfHunyuan) {
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

TEST(GgufTest, AlignmentOfTheFileIsKept) {
  std::vector<std::string> keys = Llama();
  keys.push_back(U32("general.alignment", 256));
  std::string file =
      Padded(File(keys, {Tensor("rope_freqs.weight", {1}, 0, 0)}), 256);
  file += Bytes<float>(3);
  EXPECT_EQ(Read(file).rope_freqs, (std::vector<double>{3}));
}

TEST(GgufBadInputTest, EveryCutSaysWhereTheFileEnds) {
  const std::string file = File(Llama(), {Tensor("output", {4, 4}, 2, 0)});
  for (std::size_t n = 0; n < file.size(); ++n) {
    const std::string error = ErrorOf(file.substr(0, n));
    // After it has read a count, the reader compares the count with the rest of
    // the file.
    EXPECT_TRUE(absl::StrContains(error, absl::StrCat("ends at byte ", n)) ||
                absl::StrContains(error, " in "))
        << n << ": " << error;
  }
  EXPECT_THAT(ErrorOf(""), HasSubstr("ends at byte 0"));
}

TEST(GgufBadInputTest, AStringPastTheEndIsNamedWithItsLength) {
  const std::string file =
      Head(3, 0, 1) + Bytes<std::uint64_t>(26) + "general.archi";
  EXPECT_THAT(ErrorOf(file),
              testing::AllOf(HasSubstr("ends at byte 45"),
                             HasSubstr("a string of 26 bytes begins at")));
}

TEST(GgufBadInputTest, OtherMagicAndVersionsAreToldApart) {
  EXPECT_EQ(ErrorOf("GGML" + std::string(30, 'x')),
            "begins with \"GGML\", not \"GGUF\"");
  EXPECT_THAT(
      ErrorOf(File(Llama(), {}, 1)),
      HasSubstr(
          "GGUF version 1 (32-bit counts) is not read; convert it again"));
  EXPECT_THAT(ErrorOf(File(Llama(), {}, 4)),
              HasSubstr("GGUF version 4 is not read"));
  EXPECT_THAT(ErrorOf(File(Llama(), {}, 0x03000000)),
              HasSubstr("big-endian GGUF (version 3)"));
}

TEST(GgufBadInputTest, CountsAreComparedWithTheRemainingBytes) {
  // Another GGUF reader hung on a file of 43 bytes with such a count.
  EXPECT_EQ(ErrorOf(Head(3, 0, std::uint64_t{1} << 62)),
            "4611686018427387904 keys in 0 bytes");
  EXPECT_EQ(ErrorOf(Head(3, std::uint64_t{1} << 62, 0) + std::string(19, 0)),
            "4611686018427387904 tensors in 19 bytes");
  EXPECT_THAT(ErrorOf(Head(3, 0, 1000001) + std::string(13 * 1000001, 0)),
              HasSubstr("1000001 keys; at most 1000000 are read"));
}

TEST(GgufBadInputTest, KeptMemoryIsBoundedForEveryFile) {
  // 13 MB of bools in lists would become 104 MB of numbers.
  const std::string list = Bytes<std::uint32_t>(7) +
                           Bytes<std::uint64_t>(65536) + std::string(65536, 1);
  std::vector<std::string> keys = Llama();
  for (int i = 0; i < 200; ++i) {
    keys.push_back(Key(absl::StrCat("llama.rope.", i), 9, list));
  }
  EXPECT_EQ(ErrorOf(File(keys)),
            "names and values that would be kept have more than 67108864 "
            "bytes");
  // Long names of tensors and keys count, too.
  std::vector<std::string> tensors;
  tensors.reserve(1100);
  for (int i = 0; i < 1100; ++i) {
    tensors.push_back(
        Tensor(absl::StrCat(i, std::string(65000, 'x')), {1}, 0, 0));
  }
  EXPECT_THAT(ErrorOf(File(Llama(), tensors)), HasSubstr("67108864"));
}

TEST(GgufBadInputTest, KeysAreNamed) {
  const auto with = [](const std::string& key) {
    std::vector<std::string> keys = Llama();
    keys.push_back(key);
    return ErrorOf(File(keys));
  };
  EXPECT_THAT(
      with(Key("a", 9, Bytes<std::uint32_t>(9) + Bytes<std::uint64_t>(1))),
      HasSubstr("key a: an array of arrays"));
  EXPECT_THAT(with(Key("a", 9,
                       Bytes<std::uint32_t>(4) +
                           Bytes<std::uint64_t>(~std::uint64_t{0}))),
              HasSubstr("key a: ends at byte"));
  EXPECT_THAT(
      with(Key("a", 9, Bytes<std::uint32_t>(13) + Bytes<std::uint64_t>(0))),
      HasSubstr("key a: an array of type 13"));
  EXPECT_THAT(with(Key("a", 13, "")), HasSubstr("key a is of type 13"));
  EXPECT_THAT(with(U32("", 1)), HasSubstr("has an empty name"));
  EXPECT_THAT(with(F32("llama.rope.freq_base", 1)),
              HasSubstr("key llama.rope.freq_base stands twice"));
}

TEST(GgufBadInputTest, KnownKeysOfTheWrongTypeAreNamed) {
  std::vector<std::string> keys = Llama();
  keys[5] = Str("llama.rope.freq_base", "500000");
  EXPECT_EQ(ErrorOf(File(keys)),
            "key llama.rope.freq_base is a string; it must be a number");
  keys[5] = F32("llama.rope.freq_base", std::nanf(""));
  EXPECT_THAT(ErrorOf(File(keys)), HasSubstr("llama.rope.freq_base is NaN"));
  keys[5] = F32("llama.rope.freq_base", 0.5);
  EXPECT_THAT(ErrorOf(File(keys)), HasSubstr("must be > 1"));
  keys[5] = U32("llama.rope.scaling.type", 2);
  EXPECT_THAT(ErrorOf(File(keys)),
              HasSubstr("llama.rope.scaling.type is a number; it must be a "
                        "string"));
  keys[5] = F32("llama.rope.scaling.factor", -2);
  EXPECT_THAT(ErrorOf(File(keys)), HasSubstr("must be > 0"));
  EXPECT_THAT(ErrorOf(File({U32("general.architecture", 1)})),
              HasSubstr("general.architecture is a number"));
  EXPECT_THAT(ErrorOf(File({})), HasSubstr("general.architecture is missing"));
}

TEST(GgufBadInputTest, LlamasHeadsRotateAsAWhole) {
  std::vector<std::string> keys = Llama();
  keys[4] = U32("llama.rope.dimension_count", 32);
  EXPECT_THAT(ErrorOf(File(keys)),
              HasSubstr("llama.rope.dimension_count is 32, and a head has 64"));
  keys[4] = U32("llama.rope.dimension_count", 128);
  EXPECT_THAT(ErrorOf(File(keys)), HasSubstr("dimension_count is 128, and"));
  keys.erase(keys.begin() + 4);
  EXPECT_EQ(ErrorOf(File(keys)), "");
  EXPECT_THAT(ErrorOf(File({Str("general.architecture", "llama-embed"),
                            U32("llama-embed.attention.key_length", 64),
                            U32("llama-embed.rope.dimension_count", 32)})),
              HasSubstr("llama.cpp refuses that for llama-embed"));
  EXPECT_EQ(ErrorOf(File({Str("general.architecture", "stablelm"),
                          U32("stablelm.embedding_length", 512),
                          U32("stablelm.attention.head_count", 8),
                          U32("stablelm.rope.dimension_count", 16)})),
            "");
}

TEST(GgufBadInputTest, AHeadWithoutAWidthNamesTheKeysThatAreMissing) {
  const auto error = [](std::vector<std::string> keys) {
    keys.insert(keys.begin(), Str("general.architecture", "qwen2"));
    return std::string(
        ResolveGguf(Read(File(keys)), 8192, false).status().message());
  };
  const std::string width = U32("qwen2.embedding_length", 512);
  for (const std::vector<std::string>& keys :
       std::vector<std::vector<std::string>>{
           {},
           {width},
           {width, U32("qwen2.attention.head_count", 0)},
           {U32("qwen2.attention.head_count", 8)}}) {
    EXPECT_THAT(error(keys),
                HasSubstr("qwen2.attention.head_count or "
                          "qwen2.embedding_length are missing or 0"));
  }
  EXPECT_THAT(error({U32("qwen2.rope.dimension_count", 0)}),
              HasSubstr("dimension_count is 0; it must be even"));
}

TEST(GgufBadInputTest, AlignmentIsAPowerOfTwoUpToOneMebibyte) {
  for (const std::uint32_t alignment : {0u, 3u, 1u << 21}) {
    std::vector<std::string> keys = Llama();
    keys.push_back(U32("general.alignment", alignment));
    EXPECT_THAT(ErrorOf(File(keys)),
                HasSubstr(absl::StrCat("general.alignment is ", alignment)));
  }
}

TEST(GgufBadInputTest, FactorsAreFiniteAndAboveZero) {
  for (const float bad : {0.0f, -1.0f, std::nanf(""), HUGE_VALF}) {
    std::string file =
        Padded(File(Llama(), {Tensor("rope_freqs.weight", {2}, 0, 0)}));
    file += Bytes(1.0f) + Bytes(bad);
    EXPECT_THAT(
        ErrorOf(file),
        testing::AllOf(HasSubstr("tensor rope_freqs.weight has a value"),
                       HasSubstr("factors are finite and > 0")));
  }
}

TEST(GgufBadInputTest, ElementsOfArraysAreIntegersOf32Bits) {
  const auto array = [](std::uint32_t type, const std::string& element) {
    return Bytes(type) + Bytes<std::uint64_t>(1) + element;
  };
  for (const std::string& refused :
       {array(0, "a"), array(3, "ab"), array(6, Bytes(16.0F)),
        array(8, Text("16")), array(10, Bytes<std::uint64_t>(16)),
        array(12, Bytes(std::nan("")))}) {
    for (const char* key :
         {"llama.rope.dimension_sections", "llama.attention.head_count"}) {
      std::vector<std::string> keys = Llama();
      keys.erase(keys.begin() + 2);
      keys.push_back(Key(key, 9, refused));
      EXPECT_THAT(
          ErrorOf(File(keys)),
          HasSubstr(absl::StrCat(
              "key ", key, " is an array, but not of integers of 32 bits")));
    }
  }
  for (const std::uint32_t type : {4, 5}) {
    std::vector<std::string> keys = Llama();
    keys[2] = Key("llama.attention.head_count", 9,
                  array(type, Bytes<std::int32_t>(8)));
    EXPECT_EQ(Read(File(keys)).head_count, 8);
  }
}

TEST(GgufBadInputTest, ANameThatIsTooLongCountsAsAbsent) {
  // Strings of more than 1 MiB are skipped, for every key.
  const std::string file =
      File({Str("general.architecture", std::string((1 << 20) + 1, 'x'))});
  EXPECT_THAT(ErrorOf(file), HasSubstr("general.architecture"));
}

TEST(GgufBadInputTest, TensorsAreNamed) {
  const auto with = [](const std::vector<std::string>& tensors) {
    return ErrorOf(Padded(File(Llama(), tensors)));
  };
  EXPECT_THAT(with({Tensor("rope_freqs.weight", {32}, 0, 0)}),
              HasSubstr("tensor rope_freqs.weight of 128 bytes begins at"));
  EXPECT_THAT(with({Tensor("rope_freqs.weight", {32}, 0, ~std::uint64_t{0})}),
              HasSubstr("tensor rope_freqs.weight"));
  EXPECT_THAT(with({Tensor("rope_freqs.weight", {32}, 2, 0)}),
              HasSubstr("tensor rope_freqs.weight is of type 2"));
  EXPECT_THAT(with({Tensor("rope_freqs.weight", {16, 2}, 0, 0)}),
              HasSubstr("tensor rope_freqs.weight has more than one row"));
  EXPECT_THAT(with({Tensor("a", {1}, 0, 0), Tensor("a", {1}, 0, 0)}),
              HasSubstr("tensor a stands twice"));
  EXPECT_THAT(with({Tensor("a", {1, 1, 1, 1, 1}, 0, 0)}),
              HasSubstr("tensor a has 5 dimensions"));
  const std::uint64_t large = std::uint64_t{1} << 40;
  EXPECT_THAT(with({Tensor("a", {large, large}, 0, 0)}),
              HasSubstr("tensor a: its extents overflow"));
  EXPECT_THAT(with({Tensor("rope_freqs.weight", {large}, 0, 0)}),
              HasSubstr("tensor rope_freqs.weight has"));
}

}  // namespace
}  // namespace posenc::core::interpretation
