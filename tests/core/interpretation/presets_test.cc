// Compares every preset with transformers' frequencies (data/peers/presets,
// recorded from the library's own classes).

#include "core/interpretation/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "core/interpretation/source.h"
#include "nlohmann/json.hpp"
#include "tests/reference/rope_reference.h"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;

const std::string kRecorded = std::string(POSENC_TEST_DATA) + "/peers/presets/";

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.emplace_back(preset.name);
  return names;
}

RopeSource PresetSource(const std::string& name, const json& layer) {
  RopeSource source;
  source.source = PresetName{name};
  if (layer.contains("layer_type")) {
    source.layer_type = layer["layer_type"].get<std::string>();
  }
  if (layer.contains("layer_index")) {
    source.layer_index = layer["layer_index"].get<std::int32_t>();
  }
  if (layer.contains("seq_len")) {
    source.sequence_length = layer["seq_len"].get<std::int64_t>();
  }
  return source;
}

class PresetTest : public testing::TestWithParam<std::string> {};

TEST_P(PresetTest, HasFrequenciesOfItsConfig) {
  std::ifstream file(kRecorded + GetParam() + ".json");
  ASSERT_TRUE(file.is_open()) << "nothing is recorded for this preset";
  const json peer = json::parse(file);
  ASSERT_FALSE(peer["layers"].empty());
  for (const json& layer : peer["layers"]) {
    const auto rope = ResolveSource(PresetSource(GetParam(), layer), 0,
                                    MissingLength::kAssumeOriginal);
    ASSERT_TRUE(rope.ok()) << rope.status();
    const auto expected = layer["inv_freq"].get<std::vector<double>>();
    ASSERT_EQ(rope->inv_freq.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // The library's float32 power, quotient and blend are within 5 ulp of
      // exact arithmetic. An ulp is at most 2^-23 of the value.
      EXPECT_NEAR(rope->inv_freq[i], expected[i], 5 * 0x1p-23 * expected[i])
          << "pair " << i;
    }
    // Recorded with 9 digits.
    EXPECT_NEAR(rope->attention_factor,
                layer["attention_scaling"].get<double>(), 1e-7);
  }
}

TEST_P(PresetTest, HasTheNearestFrequencies) {
  std::ifstream file(kRecorded + GetParam() + ".json");
  ASSERT_TRUE(file.is_open());
  const json peer = json::parse(file);
  for (const json& layer : peer["layers"]) {
    const RopeSource source = PresetSource(GetParam(), layer);
    const auto rope = ResolveSource(source, 0, MissingLength::kAssumeOriginal);
    ASSERT_TRUE(rope.ok()) << rope.status();
    const std::vector<reference::Quad> exact = reference::InvFreq(
        rope->spec, source.sequence_length.value_or(
                        rope->original_max_position_embeddings));
    EXPECT_EQ(rope->inv_freq, std::vector<double>(exact.begin(), exact.end()));
  }
}

// The published file of afm-4.5b has a factor that is not the ratio of its
// lengths. The file of dbrx has a base that transformers' class does not read.
bool WarnsAsPublished(const std::string& name) {
  return name == "afm-4.5b" || name == "dbrx";
}

TEST_P(PresetTest, WarnsOnlyOfWhatIsPublishedOddly) {
  std::ifstream file(kRecorded + GetParam() + ".json");
  ASSERT_TRUE(file.is_open());
  const json peer = json::parse(file);
  for (const json& layer : peer["layers"]) {
    const auto rope = ResolveSource(PresetSource(GetParam(), layer), 0,
                                    MissingLength::kAssumeOriginal);
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->warnings.empty(), !WarnsAsPublished(GetParam()))
        << testing::PrintToString(rope->warnings);
    EXPECT_FALSE(rope->spec.nope);
    EXPECT_GE(rope->head_dim, rope->spec.rotary_dim);
  }
}

class NopePresetTest : public testing::TestWithParam<std::string> {};

TEST_P(NopePresetTest, MarksLayersWithoutRope) {
  std::ifstream file(kRecorded + GetParam() + ".json");
  ASSERT_TRUE(file.is_open());
  const json layer = json::parse(file)["layers"][0];
  const auto nope = layer["nope_layers"].get<std::vector<std::int32_t>>();
  RopeSource source = PresetSource(GetParam(), layer);
  for (std::int32_t index = 0; index <= nope.back(); ++index) {
    source.layer_index = index;
    const auto rope = ResolveSource(source, 0, MissingLength::kAssumeOriginal);
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->spec.nope,
              std::find(nope.begin(), nope.end(), index) != nope.end())
        << "layer " << index;
  }
}

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

// Returns the presets that have layers without rope.
std::vector<std::string> NopePresetNames() {
  std::vector<std::string> names;
  for (const std::string& name : PresetNames()) {
    std::ifstream file(kRecorded + name + ".json");
    const json peer = json::parse(file, nullptr, false);
    if (!peer.is_discarded() && peer["layers"][0].contains("nope_layers")) {
      names.push_back(name);
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, PresetTest, testing::ValuesIn(PresetNames()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(All, NopePresetTest,
                         testing::ValuesIn(NopePresetNames()), NameOf);

TEST(PresetsTest, AreSortedAndDistinct) {
  ASSERT_GE(Presets().size(), 60u);
  for (std::size_t i = 1; i < Presets().size(); ++i) {
    EXPECT_LT(Presets()[i - 1].name, Presets()[i].name);
  }
}

TEST(PresetsTest, EveryRecordHasItsPreset) {
  for (const auto& entry : std::filesystem::directory_iterator(kRecorded)) {
    EXPECT_NE(FindPreset(entry.path().stem().string()), nullptr)
        << entry.path();
  }
}

TEST(PresetsTest, HavePublishedWidthsAndPairings) {
  const struct {
    const char* name;
    int head_dim, rotary_dim;
    Pairing pairing;
  } models[] = {
      {"llama-2-7b", 128, 128, Pairing::kHalfSplit},
      {"llama-3.2-1b", 64, 64, Pairing::kHalfSplit},
      {"qwen3-0.6b", 128, 128, Pairing::kHalfSplit},
      {"qwen3-next-80b-a3b", 256, 64, Pairing::kHalfSplit},
      {"gpt-neox-20b", 96, 24, Pairing::kHalfSplit},
      {"gpt-j-6b", 256, 64, Pairing::kInterleaved},
      {"gpt-oss-20b", 64, 64, Pairing::kHalfSplit},
      {"deepseek-v3", 192, 64, Pairing::kInterleaved},
      {"phi-4-mini", 128, 96, Pairing::kHalfSplit},
      {"minimax-m2", 128, 64, Pairing::kHalfSplit},
      {"command-r", 128, 128, Pairing::kInterleaved},
      {"glm-4-9b", 128, 64, Pairing::kInterleaved},
      {"glm-4.5-air", 128, 64, Pairing::kHalfSplit},
  };
  for (const auto& model : models) {
    RopeSource source;
    source.source = PresetName{model.name};
    source.sequence_length = 4096;
    const auto rope = ResolveSource(source, 0, MissingLength::kError);
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->head_dim, model.head_dim) << model.name;
    EXPECT_EQ(rope->spec.rotary_dim, model.rotary_dim) << model.name;
    EXPECT_EQ(rope->spec.pairing, model.pairing) << model.name;
  }
}

}  // namespace
}  // namespace posenc::core::interpretation
