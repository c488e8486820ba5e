// Interpretation of configurations: spellings, families, layers, and bad input.

#include "core/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/model/source.h"

namespace posenc::core {
namespace {

using testing::HasSubstr;

absl::StatusOr<ModelRope> ReadText(
    const std::string& text, std::optional<std::string> layer_type = {},
    std::optional<std::int32_t> layer_index = {}) {
  return ReadModelConfig(text, {Profile::kHf}, layer_type, layer_index);
}

// A Llama-like config with more keys.
std::string Llama(const std::string& more) {
  return R"({"model_type": "llama", "hidden_size": 4096,
             "num_attention_heads": 32, "max_position_embeddings": 8192)" +
         (more.empty() ? "" : ", " + more) + "}";
}

std::string MetadataKey(const absl::Status& status) {
  const auto details = GetErrorDetails(status);
  if (!details) return "no details";
  for (const auto& [key, value] : details->metadata) {
    if (key == "key") return value;
  }
  return "";
}

void ExpectConfigError(const absl::Status& status, const std::string& key,
                       const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const auto details = GetErrorDetails(status);
  ASSERT_TRUE(details.has_value()) << status;
  EXPECT_EQ(details->reason, ErrorReason::kModelConfigInvalid) << status;
  EXPECT_EQ(details->field, "config_json");
  EXPECT_EQ(MetadataKey(status), key);
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

bool Assumed(const ModelRope& rope, const std::string& field,
             const std::string& value) {
  return std::any_of(rope.assumptions.begin(), rope.assumptions.end(),
                     [&](const Assumption& assumption) {
                       return assumption.field == field &&
                              assumption.value == value;
                     });
}

TEST(ModelConfigTest, RejectsTextThatIsNotAnObject) {
  ExpectConfigError(ReadText("").status(), "", "is not JSON");
  ExpectConfigError(ReadText("{\"hidden_size\": ").status(), "", "is not JSON");
  ExpectConfigError(ReadText("[1]").status(), "", "must be an object");
  ExpectConfigError(ReadText("{\"rope_theta\": 1e999}").status(), "rope_theta",
                    "rope_theta is 1e999, which no float64 holds");
}

TEST(ModelConfigTest, APathInPlaceOfTheTextIsCalledOne) {
  for (const char* const path : {"config.json", "/models/llama/config.json",
                                 "C:\\models\\config", "models/llama"}) {
    ExpectConfigError(ReadText(path).status(), "",
                      "is not JSON: a path? send the file's text");
  }
  for (const char* const text : {"", "{\"a\": \"x/config.json\"", "llama"}) {
    const absl::Status status = ReadText(text).status();
    EXPECT_EQ(status.message().find("path"), absl::string_view::npos) << status;
  }
}

TEST(ModelConfigTest, ReadsPythonsNonFiniteNumbersWhereTheyDoNotMatter) {
  // Bamba's own default is "time_step_limit": [0.0, Infinity].
  const auto rope =
      ReadText(Llama(R"("time_step_limit": [-Infinity, Infinity], "pad": NaN,
              "note": "Infinity \"NaN", "rope_theta": 5e5)"));
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->spec.rope_theta, 5e5);
  for (const std::string word : {"Infinity", "-Infinity", "NaN"}) {
    ExpectConfigError(ReadText(Llama("\"rope_theta\": " + word)).status(),
                      "rope_theta", "is " + word + "; it must be a number");
    ExpectConfigError(
        ReadText(Llama(R"("rope_scaling": {"type": "linear", "factor": )" +
                       word + "}"))
            .status(),
        "rope_scaling.factor", "is " + word);
    // No word of JSON in any other way.
    ExpectConfigError(ReadText("{\"a\": 1" + word + "}").status(), "",
                      "is not JSON");
  }
}

TEST(ModelConfigTest, RejectsDeepAndLongText) {
  ExpectConfigError(
      ReadText(std::string(65, '[') + std::string(65, ']')).status(), "",
      "deeper than 64");
  ExpectConfigError(ReadText(std::string(100000, '[')).status(), "",
                    "deeper than 64");
  ExpectConfigError(ReadText(std::string((1 << 20) + 1, ' ')).status(), "",
                    "1048577 bytes");
  // Brackets inside strings are not depth.
  EXPECT_TRUE(
      ReadText(Llama("\"note\": \"\\\"" + std::string(100, '[') + "\"")).ok());
}

TEST(ModelConfigTest, NamesKeysOfTheWrongType) {
  ExpectConfigError(ReadText(Llama(R"("rope_theta": "1e6")")).status(),
                    "rope_theta", "a number");
  ExpectConfigError(ReadText(Llama(R"("rope_scaling": "yarn")")).status(),
                    "rope_scaling", "an object");
  ExpectConfigError(
      ReadText(Llama(R"("rope_scaling": {"type": "linear", "factor": "2"})"))
          .status(),
      "rope_scaling.factor", "a number");
  ExpectConfigError(
      ReadText(Llama(R"("rope_parameters": {"rope_type": 3})")).status(),
      "rope_parameters.rope_type", "a string");
  ExpectConfigError(ReadText(Llama(R"("head_dim": 64.5)")).status(), "head_dim",
                    "whole number");
  ExpectConfigError(ReadText(Llama(R"("layer_types": [1])"), {}, 0).status(),
                    "layer_types", "array of strings");
}

TEST(ModelConfigTest, NamesMissingKeys) {
  ExpectConfigError(ReadText(R"({"model_type": "llama"})").status(),
                    "hidden_size", "missing");
  ExpectConfigError(
      ReadText(Llama(R"("rope_scaling": {"type": "linear"})")).status(),
      "rope_scaling.factor", "missing");
  ExpectConfigError(
      ReadText(Llama(R"("rope_scaling": {"type": "longrope"})")).status(),
      "rope_scaling.short_factor", "missing");
}

TEST(ModelConfigTest, RejectsZeroHeads) {
  ExpectConfigError(
      ReadText(R"({"hidden_size": 64, "num_attention_heads": 0})").status(),
      "num_attention_heads", "at least 1");
}

TEST(ModelConfigTest, NamesUnknownRopeType) {
  ExpectConfigError(
      ReadText(Llama(R"("rope_scaling": {"type": "spiral", "factor": 2})"))
          .status(),
      "rope_scaling.type", "known are default, linear");
}

TEST(ModelConfigTest, ScalingBeatsParametersWhole) {
  const auto rope = ReadText(Llama(R"("rope_theta": 5,
      "rope_scaling": {"type": "linear", "factor": 2},
      "rope_parameters": {"rope_type": "linear", "factor": 4,
                          "rope_theta": 7})"));
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(std::get<LinearScaling>(rope->spec.scaling).factor, 2);
  EXPECT_EQ(rope->spec.rope_theta, 5);
}

TEST(ModelConfigTest, ThetaOfTheDictBeatsTheTopLevel) {
  const auto rope = ReadText(
      Llama(R"("rope_theta": 5, "rope_parameters": {"rope_theta": 7})"));
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->spec.rope_theta, 7);
}

TEST(ModelConfigTest, SaysWhatItFilledIn) {
  const auto rope =
      ReadText(Llama(R"("rope_scaling": {"rope_type": "yarn", "factor": 4})"));
  ASSERT_TRUE(rope.ok()) << rope.status();
  const auto& yarn = std::get<YarnScaling>(rope->spec.scaling);
  EXPECT_EQ(yarn.original_max_position_embeddings, 8192);
  EXPECT_EQ(yarn.beta_fast, 32);
  EXPECT_EQ(yarn.beta_slow, 1);
  EXPECT_EQ(yarn.truncate, true);
  EXPECT_TRUE(Assumed(*rope, "rope_theta", "10000"));
  EXPECT_TRUE(Assumed(*rope, "rope_scaling.beta_fast", "32"));
  EXPECT_TRUE(Assumed(*rope, "rope_scaling.beta_slow", "1"));
  EXPECT_TRUE(Assumed(*rope, "rope_scaling.truncate", "true"));
  EXPECT_TRUE(
      Assumed(*rope, "rope_scaling.original_max_position_embeddings", "8192"));
}

TEST(ModelConfigTest, WarnsOfRotaryKeysThatAreNotRead) {
  const auto rope = ReadText(Llama(R"("rope_wobble": 1, "vocab_size": 2,
      "rope_scaling": {"rope_type": "yarn", "factor": 4,
                       "attn_factor": 0.5})"));
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_THAT(rope->warnings, testing::UnorderedElementsAre(
                                  HasSubstr("rope_scaling.attn_factor"),
                                  HasSubstr("rope_wobble")));
}

TEST(ModelConfigTest, ReadsTheLanguagePartOfANestedConfig) {
  const auto rope = ReadText(
      R"({"model_type": "llava", "rope_theta": 3, "vision_config": {},
          "text_config": {"model_type": "cohere", "hidden_size": 512,
                          "num_attention_heads": 8, "rope_theta": 77}})");
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->head_dim, 64);
  EXPECT_EQ(rope->spec.rope_theta, 77);
  EXPECT_EQ(rope->spec.pairing, Pairing::kInterleaved);
}

TEST(ModelConfigTest, PartialFactorCountsByFamily) {
  const std::string more =
      R"("partial_rotary_factor": 0.5, "hidden_size": 1024,
         "num_attention_heads": 8, "rope_theta": 10000})";
  const auto llama = ReadText(R"({"model_type": "llama", )" + more);
  const auto phi = ReadText(R"({"model_type": "phi", )" + more);
  const auto other = ReadText(R"({"model_type": "new-model", )" + more);
  ASSERT_TRUE(llama.ok() && phi.ok() && other.ok());
  EXPECT_EQ(llama->spec.rotary_dim, 128);
  EXPECT_THAT(llama->warnings,
              testing::Contains(HasSubstr("partial_rotary_factor")));
  EXPECT_EQ(phi->spec.rotary_dim, 64);
  EXPECT_EQ(other->spec.rotary_dim, 64);
  EXPECT_TRUE(Assumed(*other, "pairing", "half-split"));
}

constexpr char kGemma[] = R"({"model_type": "gemma3_text", "head_dim": 256,
    "num_hidden_layers": 34, "rope_theta": 1000000,
    "rope_local_base_freq": 10000,
    "rope_scaling": {"rope_type": "linear", "factor": 8},
    "sliding_window_pattern": 6})";

TEST(ModelConfigTest, AsksForALayerWhereLayersDiffer) {
  const absl::Status status = ReadText(kGemma).status();
  const auto details = GetErrorDetails(status);
  ASSERT_TRUE(details.has_value()) << status;
  EXPECT_EQ(details->reason, ErrorReason::kFieldRequired);
  EXPECT_EQ(details->field, "layer_type");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("full_attention, sliding_attention"));
}

TEST(ModelConfigTest, ReadsEachTypeOfLayer) {
  const auto full = ReadText(kGemma, "full_attention");
  const auto local = ReadText(kGemma, "sliding_attention");
  ASSERT_TRUE(full.ok() && local.ok());
  EXPECT_EQ(full->spec.rope_theta, 1e6);
  EXPECT_EQ(std::get<LinearScaling>(full->spec.scaling).factor, 8);
  EXPECT_EQ(local->spec.rope_theta, 1e4);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(local->spec.scaling));
  for (int layer = 0; layer < 34; ++layer) {
    const auto rope = ReadText(kGemma, {}, layer);
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->spec.rope_theta, layer % 6 == 5 ? 1e6 : 1e4) << layer;
  }
}

TEST(ModelConfigTest, RejectsLayersThatTheModelDoesNotHave) {
  const absl::Status type = ReadText(kGemma, "cross_attention").status();
  EXPECT_EQ(GetErrorDetails(type)->field, "layer_type");
  EXPECT_THAT(std::string(type.message()), HasSubstr("sliding_attention"));
  for (const int layer : {-1, 34}) {
    EXPECT_EQ(GetErrorDetails(ReadText(kGemma, {}, layer).status())->field,
              "layer_index");
  }
}

TEST(ModelConfigTest, AcceptsALayerIndexWhereLayersAreAlike) {
  EXPECT_TRUE(ReadText(Llama(R"("num_hidden_layers": 2)"), {}, 1).ok());
  EXPECT_FALSE(ReadText(Llama(R"("num_hidden_layers": 2)"), {}, 2).ok());
}

TEST(ModelConfigTest, EqualNestedLayersNeedNoChoice) {
  const auto rope = ReadText(Llama(R"("rope_parameters": {
      "full_attention": {"rope_type": "default", "rope_theta": 9},
      "sliding_attention": {"rope_type": "default", "rope_theta": 9}})"));
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->spec.rope_theta, 9);
}

TEST(ModelConfigTest, NullNestedParametersAreNoRope) {
  const auto rope = ReadText(Llama(R"("rope_parameters": {
      "full_attention": null,
      "sliding_attention": {"rope_type": "default", "rope_theta": 9}})"),
                             "full_attention");
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_TRUE(rope->spec.nope);
}

TEST(ModelConfigTest, ZeroMarksALayerWithoutRope) {
  const std::string config =
      R"({"model_type": "smollm3", "hidden_size": 2048, "rope_theta": 5e6,
          "num_attention_heads": 16, "no_rope_layers": [1, 1, 0, 1]})";
  for (int layer = 0; layer < 4; ++layer) {
    const auto rope = ReadText(config, {}, layer);
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->spec.nope, layer == 2);
  }
  EXPECT_EQ(GetErrorDetails(ReadText(config).status())->reason,
            ErrorReason::kFieldRequired);
}

TEST(ModelConfigTest, EmptyNoRopeLayersIsEveryFourth) {
  const std::string config =
      R"({"model_type": "llama4_text", "head_dim": 128, "rope_theta": 5e5,
          "no_rope_layers": [], "attn_temperature_tuning": 4})";
  for (int layer = 0; layer < 8; ++layer) {
    const auto rope = ReadText(config, {}, layer);
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->spec.nope, layer % 4 == 3);
    ASSERT_EQ(rope->query_scale.has_value(), layer % 4 == 3);
  }
  const auto nope = ReadText(config, {}, 3);
  EXPECT_EQ(nope->query_scale->beta, 0.1);
  EXPECT_EQ(nope->query_scale->floor_scale, 8192);
  EXPECT_EQ(nope->query_scale->offset, 1);
}

TEST(ModelConfigTest, ReadsErnieSectionsAsTimeHeightWidth) {
  const auto rope = ReadText(
      R"({"model_type": "ernie4_5_vl_moe", "head_dim": 128,
          "rope_scaling": {"rope_type": "default",
                           "mrope_section": [22, 22, 20]}})");
  ASSERT_TRUE(rope.ok()) << rope.status();
  ASSERT_TRUE(rope->spec.axes.has_value());
  EXPECT_EQ(rope->spec.axes->assignment, AxisAssignment::kAlternatingTail);
  EXPECT_THAT(rope->spec.axes->sections, testing::ElementsAre(20, 22, 22));
}

TEST(ModelConfigTest, GlobalHeadsMayBeWider) {
  const std::string config =
      R"({"model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512,
          "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "rope_theta": 1e6,
                               "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}})";
  const auto full = ReadText(config, "full_attention");
  const auto local = ReadText(config, "sliding_attention");
  ASSERT_TRUE(full.ok() && local.ok());
  EXPECT_EQ(full->spec.rotary_dim, 512);
  EXPECT_EQ(std::get<ProportionalScaling>(full->spec.scaling).rotating_pairs,
            64);
  EXPECT_EQ(local->spec.rotary_dim, 256);
}

RopeSource FromConfig(const std::string& text) {
  RopeSource source;
  source.source = ConfigJson{text};
  return source;
}

absl::Status Resolve(const RopeSource& source, std::int64_t head_dim = 0) {
  return ResolveSource(source, head_dim, MissingLength::kError).status();
}

TEST(SourceTest, MustBeGiven) {
  EXPECT_EQ(GetErrorDetails(Resolve(RopeSource()))->reason,
            ErrorReason::kFieldRequired);
}

TEST(SourceTest, ConfigValuesThatCannotBeAreConfigErrors) {
  ExpectConfigError(
      Resolve(FromConfig(
          Llama(R"("rope_scaling": {"type": "linear", "factor": 0})"))),
      "rope_scaling.factor", "rope_scaling.factor: is unset or 0");
}

TEST(SourceTest, AcceptsATensorOfTheRotatedPartAlone) {
  const RopeSource source = FromConfig(
      R"({"model_type": "deepseek_v3", "qk_rope_head_dim": 64,
          "qk_nope_head_dim": 128, "rope_theta": 10000})");
  EXPECT_TRUE(Resolve(source, 64).ok());
  EXPECT_TRUE(Resolve(source, 192).ok());
  const absl::Status narrow = Resolve(source, 32);
  EXPECT_EQ(GetErrorDetails(narrow)->reason, ErrorReason::kFieldInvalid);
  EXPECT_THAT(std::string(narrow.message()), HasSubstr("rotates 64"));
}

TEST(SourceTest, LengthIsRequiredAndPositive) {
  RopeSource source =
      FromConfig(Llama(R"("rope_scaling": {"type": "dynamic", "factor": 2})"));
  EXPECT_EQ(GetErrorDetails(Resolve(source))->field, "sequence_length");
  source.sequence_length = 0;
  EXPECT_EQ(GetErrorDetails(Resolve(source))->reason,
            ErrorReason::kFieldInvalid);
  source.sequence_length = 1;
  EXPECT_TRUE(Resolve(source).ok());
}

TEST(SourceTest, SpecsHaveNoLayers) {
  RopeSource source;
  source.source = RopeSpec{.rotary_dim = 64, .pairing = Pairing::kHalfSplit};
  EXPECT_TRUE(Resolve(source, 64).ok());
  source.layer_type = "full_attention";
  EXPECT_EQ(GetErrorDetails(Resolve(source, 64))->field, "layer_type");
}

TEST(SourceTest, NamesTheSpecInItsErrors) {
  RopeSource source;
  source.source = RopeSpec{.rotary_dim = 63, .pairing = Pairing::kHalfSplit};
  EXPECT_EQ(GetErrorDetails(Resolve(source, 64))->field, "spec.rotary_dim");
}

}  // namespace
}  // namespace posenc::core
