// Configurations of diffusion transformers (core/model/diffusion_config.h).
// What diffusers' own modules return is held by towers_test; these are the
// rules of reading.

#include "core/model/diffusion_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void ExpectRefused(const json& config, const std::string& text) {
  const absl::Status status = TryRead(config, Profile::kHf).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << config;
  const auto details = GetErrorDetails(status);
  ASSERT_TRUE(details.has_value()) << status;
  EXPECT_EQ(details->field, "config_json");
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(DiffusionConfigTest, AFilesWidthsAreThePairsOfItsAxes) {
  const ResolvedRope rope = Read({{"_class_name", "FluxTransformer2DModel"},
                                  {"attention_head_dim", 64},
                                  {"axes_dims_rope", {8, 24, 32}}},
                                 Profile::kHf);
  ASSERT_TRUE(rope.spec.axes.has_value());
  EXPECT_THAT(rope.spec.axes->sections, ElementsAre(4, 12, 16));
  EXPECT_EQ(rope.spec.rotary_dim, 64);
  EXPECT_EQ(rope.spec.pairing, Pairing::kInterleaved);
  EXPECT_THAT(rope.warnings, IsEmpty());
}

// theta^(-2i/d) with the d of each axis.
TEST(DiffusionConfigTest, EveryAxisCountsItsOwnFrequencies) {
  const ResolvedRope rope = Read({{"_class_name", "FluxTransformer2DModel"},
                                  {"axes_dims_rope", {16, 56, 56}}},
                                 Profile::kHf);
  ASSERT_EQ(rope.inv_freq.size(), 64u);
  const auto frequency = [](int i, int width) {
    return std::pow(10000.0L, -2.0L * i / width);
  };
  for (int i = 0; i < 8; ++i) ExpectSame(rope.inv_freq[i], frequency(i, 16));
  for (int i = 0; i < 28; ++i) {
    ExpectSame(rope.inv_freq[8 + i], frequency(i, 56));
    ExpectSame(rope.inv_freq[36 + i], frequency(i, 56));
  }
}

// Wan gives height and width 2 * (d // 6) channels each, time the rest.
TEST(DiffusionConfigTest, WansAxesShareTheHeadInThirdsAndTimeHasTheRest) {
  for (const auto& [head, sections] :
       std::vector<std::pair<int, std::vector<int>>>{
           {128, {22, 21, 21}}, {64, {12, 10, 10}}, {96, {16, 16, 16}}}) {
    const ResolvedRope rope = Read({{"_class_name", "WanTransformer3DModel"},
                                    {"attention_head_dim", head}},
                                   Profile::kHf);
    EXPECT_THAT(rope.spec.axes->sections, testing::ElementsAreArray(sections));
  }
}

TEST(DiffusionConfigTest, AbsentKeysAreTheClassesAndAreSaid) {
  const ResolvedRope flux2 =
      Read({{"_class_name", "Flux2Transformer2DModel"}}, Profile::kHf);
  EXPECT_THAT(flux2.spec.axes->sections, ElementsAre(16, 16, 16, 16));
  EXPECT_EQ(flux2.spec.rope_theta, 2000);
  EXPECT_TRUE(Assumed(flux2, "axes_dims_rope", "32, 32, 32, 32"));
  EXPECT_TRUE(Assumed(flux2, "rope_theta", "2000"));
  EXPECT_TRUE(Assumed(flux2, "axes", "time, height, width, text"));
  const ResolvedRope image =
      Read({{"_class_name", "HunyuanImageTransformer2DModel"}}, Profile::kHf);
  EXPECT_TRUE(Assumed(image, "axes", "height, width"));
}

TEST(DiffusionConfigTest, OfABaseThatTheClassFixesNoKeyIsRead) {
  const ResolvedRope rope =
      Read({{"_class_name", "FluxTransformer2DModel"}, {"rope_theta", 500}},
           Profile::kHf);
  EXPECT_EQ(rope.spec.rope_theta, 10000);
  EXPECT_TRUE(Warned(rope, "rope_theta is not read"));
}

TEST(DiffusionConfigTest, WidthsThatDoNotFillTheHeadAreRefused) {
  const json flux = {{"_class_name", "FluxTransformer2DModel"},
                     {"attention_head_dim", 128}};
  for (const auto& [widths, text] : std::vector<std::pair<json, std::string>>{
           {{16, 56}, "axes_dims_rope has 2 values; there are 3 axes"},
           {{16, 56, 55}, "has 55; each must be an even number"},
           {{16, 56, 0}, "has 0; each must be an even number"},
           {{16, 56, -2}, "has -2; each must be an even number"},
           {{16, 56, 48}, "sums to 120, and attention_head_dim is 128"},
           {{16, 56, "56"}, "axes_dims_rope has an element of type string"},
           {"16,56,56", "axes_dims_rope is of type string"}}) {
    json config = flux;
    config["axes_dims_rope"] = widths;
    ExpectRefused(config, text);
  }
}

TEST(DiffusionConfigTest, HeadsAndBasesOutOfRangeAreRefused) {
  for (const int head : {0, -128, 4, 127, 1 << 20}) {
    ExpectRefused({{"_class_name", "WanTransformer3DModel"},
                   {"attention_head_dim", head}},
                  "attention_head_dim is");
  }
  for (const double theta : {0.0, -1.0, 1.0, 1e300}) {
    ExpectRefused({{"_class_name", "HunyuanVideoTransformer3DModel"},
                   {"rope_theta", theta}},
                  "rope_theta is");
  }
}

TEST(DiffusionConfigTest, AClassThatIsNotKnownIsNamed) {
  ExpectRefused({{"_class_name", "UNet2DConditionModel"}},
                "_class_name is \"UNet2DConditionModel\", of which no rotary "
                "encoding is known here");
  ExpectRefused({{"_class_name", ""}}, "_class_name is \"\"");
}

TEST(DiffusionConfigTest, ItHasNoPartsAndNoLayersToChoose) {
  RopeSource source;
  source.source = ConfigJson{R"({"_class_name":"FluxTransformer2DModel"})"};
  source.part = ModelPart::kText;
  auto rope = ResolveSource(source, 0, MissingLength::kError);
  EXPECT_EQ(GetErrorDetails(rope.status())->field, "part");
  source.part = ModelPart::kVision;
  EXPECT_TRUE(ResolveSource(source, 0, MissingLength::kError).ok());
  source.layer_index = 0;
  rope = ResolveSource(source, 0, MissingLength::kError);
  EXPECT_EQ(GetErrorDetails(rope.status())->field, "layer_index");
}

TEST(DiffusionConfigTest, OtherReadersAreNotAskedAndThatIsSaid) {
  EXPECT_TRUE(
      Warned(Read({{"_class_name", "FluxTransformer2DModel"}}, Profile::kVllm),
             "this is diffusers' interpretation"));
}

}  // namespace
}  // namespace posenc::core
