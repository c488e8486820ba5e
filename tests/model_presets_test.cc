#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/model/config.h"
#include "core/model/presets.h"
#include "core/model/source.h"

namespace posenc::core {
namespace {

ResolvedRope Resolved(const std::string& name,
                      std::optional<std::string> layer_type = {}) {
  RopeSource source;
  source.source = PresetName{name};
  source.layer_type = layer_type;
  source.sequence_length = 4096;
  auto rope = ResolveSource(source, 0, MissingLength::kError);
  EXPECT_TRUE(rope.ok()) << name << ": " << rope.status();
  return rope.ok() ? *rope : ResolvedRope();
}

TEST(PresetsTest, AreSortedAndDistinct) {
  ASSERT_GE(Presets().size(), 33u);
  for (std::size_t i = 1; i < Presets().size(); ++i) {
    EXPECT_LT(Presets()[i - 1].name, Presets()[i].name);
  }
}

TEST(PresetsTest, AllResolve) {
  for (const Preset& preset : Presets()) {
    const std::string name(preset.name);
    // Gemma 3's layers differ.
    const ResolvedRope rope = name == "gemma-3-4b"
                                  ? Resolved(name, "full_attention")
                                  : Resolved(name);
    EXPECT_GT(rope.inv_freq.size(), 0u) << name;
    EXPECT_THAT(rope.warnings, testing::IsEmpty()) << name;
  }
}

TEST(PresetsTest, HavePublishedWidthsAndBases) {
  const struct {
    const char* name;
    int head_dim, rotary_dim;
    double theta;
    Pairing pairing;
  } models[] = {
      {"llama-2-7b", 128, 128, 10000, Pairing::kHalfSplit},
      {"llama-3.1-8b", 128, 128, 500000, Pairing::kHalfSplit},
      {"llama-3.2-1b", 64, 64, 500000, Pairing::kHalfSplit},
      {"qwen3-0.6b", 128, 128, 1000000, Pairing::kHalfSplit},
      {"gpt-neox-20b", 96, 24, 10000, Pairing::kHalfSplit},
      {"gpt-j-6b", 256, 64, 10000, Pairing::kInterleaved},
      {"gpt-oss-20b", 64, 64, 150000, Pairing::kHalfSplit},
      {"deepseek-v3", 192, 64, 10000, Pairing::kInterleaved},
      {"phi-4-mini", 128, 96, 10000, Pairing::kHalfSplit},
      {"command-r", 128, 128, 8000000, Pairing::kInterleaved},
      {"glm-4-9b", 128, 64, 10000, Pairing::kInterleaved},
  };
  for (const auto& model : models) {
    const ResolvedRope rope = Resolved(model.name);
    EXPECT_EQ(rope.head_dim, model.head_dim) << model.name;
    EXPECT_EQ(rope.spec.rotary_dim, model.rotary_dim) << model.name;
    EXPECT_EQ(rope.spec.rope_theta, model.theta) << model.name;
    EXPECT_EQ(rope.spec.pairing, model.pairing) << model.name;
  }
}

TEST(PresetsTest, GptOssDoesNotTruncateItsRamp) {
  const ResolvedRope rope = Resolved("gpt-oss-20b");
  EXPECT_EQ(std::get<YarnScaling>(rope.spec.scaling).truncate, false);
}

TEST(PresetsTest, UnknownNameListsNearOnes) {
  RopeSource source;
  source.source = PresetName{"llama3.1-8b"};
  const absl::Status status =
      ResolveSource(source, 0, MissingLength::kError).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  const auto details = GetErrorDetails(status);
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->reason, ErrorReason::kPresetUnknown);
  EXPECT_EQ(details->field, "preset");
  EXPECT_THAT(details->metadata,
              testing::Contains(testing::Pair("preset", "llama3.1-8b")));
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("llama-3.1-8b"));
  EXPECT_EQ(FindPreset("llama3.1-8b"), nullptr);
}

}  // namespace
}  // namespace posenc::core
