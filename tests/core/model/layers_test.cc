// Models whose layers have different rotations, or none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/model/config.h"
#include "nlohmann/json.hpp"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::HasSubstr;

absl::StatusOr<ModelRope> Read(const json& config,
                               std::optional<std::int32_t> layer_index = {},
                               std::optional<std::string> layer_type = {}) {
  return ReadModelConfig(config.dump(), {Profile::kHf}, layer_type,
                         layer_index);
}

json Model(const std::string& type, const json& more = json::object()) {
  json config = {{"model_type", type},
                 {"hidden_size", 4096},
                 {"num_attention_heads", 32},
                 {"max_position_embeddings", 8192}};
  config.update(more);
  return config;
}

void ExpectRefused(const absl::StatusOr<ModelRope>& rope, ErrorReason reason,
                   const std::string& field, const std::string& text) {
  ASSERT_FALSE(rope.ok());
  const auto details = GetErrorDetails(rope.status());
  ASSERT_TRUE(details.has_value()) << rope.status();
  EXPECT_EQ(details->reason, reason) << rope.status();
  EXPECT_EQ(details->field, field) << rope.status();
  EXPECT_THAT(std::string(rope.status().message()), HasSubstr(text));
}

bool IsNope(const absl::StatusOr<ModelRope>& rope) {
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() && rope->spec.nope;
}

double Theta(const absl::StatusOr<ModelRope>& rope) {
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() ? rope->spec.rope_theta.value_or(0) : 0;
}

TEST(ClassParametersTest, StandInForAbsentOnesAndAreSaid) {
  const auto rope = Read(Model("gpt_oss"));
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(std::get<YarnScaling>(rope->spec.scaling).factor, 32);
  EXPECT_EQ(rope->spec.rope_theta, 150000);
  EXPECT_EQ(std::count_if(rope->assumptions.begin(), rope->assumptions.end(),
                          [](const Assumption& assumption) {
                            return assumption.field == "rope_parameters";
                          }),
            1);
  EXPECT_EQ(Theta(Read(Model("gpt_oss", {{"rope_theta", 1e6}}))), 1e6);
}

TEST(ClassParametersTest, GemmasGlobalHeadsAreWiderThanItsOthers) {
  ExpectRefused(Read(Model("gemma4_text")), ErrorReason::kFieldRequired,
                "layer_type", "the model's layers differ");
  const auto full = Read(Model("gemma4_text"), {}, "full_attention");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->head_dim, 512);
  EXPECT_EQ(std::get<ProportionalScaling>(full->spec.scaling).rotating_pairs,
            64);
  const auto local = Read(Model("gemma4_text"), {}, "sliding_attention");
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_EQ(local->head_dim, 256);
}

TEST(LayerTypesTest, TypesWithoutLayersNeedNoChoice) {
  const auto rope = Read(
      Model("gemma3", {{"layer_types", {"full_attention", "full_attention"}}}));
  EXPECT_EQ(Theta(rope), 1e6);
}

TEST(LayerTypesTest, MustBeAListOfStrings) {
  ExpectRefused(Read(Model("gemma3", {{"layer_types", 3}}), 0),
                ErrorReason::kModelConfigInvalid, "config_json",
                "layer_types is of type number, 3; it must be an array of "
                "strings");
}

TEST(LayerTypesTest, CountTheLayersWhereNothingElseDoes) {
  const json config =
      Model("gemma3", {{"layer_types", {"full_attention", "full_attention"}}});
  EXPECT_TRUE(Read(config, 1).ok());
  ExpectRefused(Read(config, 2), ErrorReason::kFieldInvalid, "layer_index",
                "2; the model has 2 layers, from 0");
  ExpectRefused(Read(config, -1), ErrorReason::kFieldInvalid, "layer_index",
                "-1; the model has 2 layers");
}

TEST(LayerTypesTest, LayersWithoutAttentionHaveNoRope) {
  const json config =
      Model("llama", {{"layer_types", {"full_attention", "conv"}},
                      {"rope_parameters",
                       {{"full_attention", {{"rope_theta", 1e4}}},
                        {"sliding_attention", {{"rope_theta", 1e5}}}}}});
  EXPECT_EQ(Theta(Read(config, 0)), 1e4);
  ExpectRefused(Read(config, 1), ErrorReason::kFieldInvalid, "layer_index",
                "layer 1 is of type conv, for which the configuration has no "
                "rope; it has full_attention, sliding_attention");
}

TEST(LayerTypesTest, MimoMarksItsSlidingLayers) {
  json config =
      Model("mimo_v2_flash", {{"head_dim", 192},
                              {"rope_theta", 5e6},
                              {"swa_rope_theta", 1e4},
                              {"num_hidden_layers", 4},
                              {"hybrid_layer_pattern", {0, 1, 1, 0}}});
  EXPECT_EQ(Theta(Read(config, 0)), 5e6);
  EXPECT_EQ(Theta(Read(config, 2)), 1e4);
  EXPECT_EQ(Theta(Read(config, 3)), 5e6);
  config.erase("hybrid_layer_pattern");
  ExpectRefused(Read(config, 0), ErrorReason::kFieldInvalid, "layer_index",
                "does not tell the type of layer 0; choose layer_type: "
                "full_attention, sliding_attention");
}

TEST(LayerTypesTest, ModelsOfOneTypeTakeTheNamesOfTheUsualOnes) {
  EXPECT_TRUE(Read(Model("llama"), {}, "full_attention").ok());
  EXPECT_TRUE(
      Read(Model("llama", {{"layer_types", {"mine"}}}), {}, "mine").ok());
  ExpectRefused(Read(Model("llama"), {}, "chunked_attention"),
                ErrorReason::kFieldInvalid, "layer_type",
                "\"chunked_attention\" is not of this model; it has "
                "full_attention, sliding_attention");
}

bool Warned(const absl::StatusOr<ModelRope>& rope, const std::string& text) {
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() &&
         std::any_of(rope->warnings.begin(), rope->warnings.end(),
                     [&text](const std::string& warning) {
                       return warning.find(text) != std::string::npos;
                     });
}

TEST(NopeTest, ListsThatFitNoLayersAreSaid) {
  const json layers = {{"num_hidden_layers", 4}};
  json model = Model("smollm3", layers);
  model["no_rope_layers"] = {1, 0};
  EXPECT_TRUE(Warned(Read(model, 0),
                     "no_rope_layers has 2 elements, and "
                     "num_hidden_layers is 4"));
  model["no_rope_layers"] = {0, 0, 0, 0};
  EXPECT_TRUE(Warned(Read(model, 0), "so that none rotates"));
  model["no_rope_layers"] = {1, 1, 1, 0};
  EXPECT_FALSE(Warned(Read(model, 0), "no_rope_layers"));
  model["no_rope_layers"] = json::array();
  EXPECT_TRUE(Warned(Read(model, 0), "no_rope_layers has 0 elements"));
  model["model_type"] = "llama4_text";  // as it is published
  EXPECT_FALSE(Warned(Read(model, 0), "no_rope_layers"));
}

TEST(NopeTest, AnIntervalThatTheClassDividesByIsNotZero) {
  for (const json& every : {json(0), json(nullptr)}) {
    EXPECT_TRUE(
        Warned(Read(Model("llama4_text", {{"num_hidden_layers", 4},
                                          {"no_rope_layer_interval", every}}),
                    0),
               "by which transformers' class divides"));
  }
  ExpectRefused(
      Read(Model("llama4_text", {{"no_rope_layer_interval", "4"}}), 0),
      ErrorReason::kModelConfigInvalid, "config_json",
      "no_rope_layer_interval is of type string");
}

TEST(LayerTypesTest, TypesThatAClassDoesNotHaveAreSaid) {
  EXPECT_TRUE(Warned(
      Read(Model("modernbert", {{"layer_types", {"full_attention", "conv"}},
                                {"num_hidden_layers", 2}}),
           0),
      "layer_types has \"conv\", and transformers' class of model_type "
      "modernbert takes full_attention, sliding_attention only"));
}

TEST(NopeTest, SwitchesTurnRopeOff) {
  EXPECT_TRUE(
      IsNope(Read(Model("llama", {{"position_embedding_type", "nope"}}))));
  EXPECT_TRUE(
      IsNope(Read(Model("esm", {{"position_embedding_type", "absolute"}}))));
  EXPECT_FALSE(
      IsNope(Read(Model("esm", {{"position_embedding_type", "rotary"}}))));
  EXPECT_TRUE(IsNope(Read(Model("falcon", {{"alibi", true}}))));
  EXPECT_TRUE(IsNope(Read(Model("jamba"))));
}

TEST(NopeTest, AThetaOfZeroInTheListIsALayerWithoutRope) {
  json config = Model("muse_spark_text", {{"num_hidden_layers", 3},
                                          {"layer_rope_theta", {5e5, 0, 1e4}}});
  EXPECT_EQ(Theta(Read(config, 0)), 5e5);
  EXPECT_TRUE(IsNope(Read(config, 1)));
  EXPECT_EQ(Theta(Read(config, 2)), 1e4);
  ExpectRefused(Read(config), ErrorReason::kFieldRequired, "layer_index",
                "layer_rope_theta");
  ExpectRefused(Read(config, 3), ErrorReason::kFieldInvalid, "layer_index",
                "3; the model has 3 layers");
  config["layer_rope_theta"] = {0, 0, 0};
  EXPECT_TRUE(IsNope(Read(config)));
  config["layer_rope_theta"] = {7, 7, 7};
  EXPECT_EQ(Theta(Read(config)), 7);
}

TEST(NopeTest, ExaoneLeavesItsGlobalLayersWithout) {
  json config = Model("exaone4", {{"num_hidden_layers", 8},
                                  {"sliding_window", 4096},
                                  {"sliding_window_pattern", "LLLG"}});
  for (int layer = 0; layer < 8; ++layer) {
    EXPECT_EQ(IsNope(Read(config, layer)), layer % 4 == 3) << layer;
  }
  EXPECT_TRUE(IsNope(Read(config, {}, "full_attention")));
  EXPECT_FALSE(IsNope(Read(config, {}, "sliding_attention")));
  ExpectRefused(Read(config), ErrorReason::kFieldRequired, "layer_type",
                "full_attention has no rope");
  config["sliding_window_pattern"] = "";
  EXPECT_FALSE(IsNope(Read(config, 3)));
  // Without a window every layer is global, and has rope.
  config["sliding_window"] = nullptr;
  EXPECT_FALSE(IsNope(Read(config)));
}

TEST(NopeTest, MuseGlimmerCountsFromTheLastLayer) {
  json config = Model("muse_glimmer_text", {{"num_hidden_layers", 6}});
  for (int layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(IsNope(Read(config, layer)), (5 - layer) % 4 == 0) << layer;
  }
  ExpectRefused(Read(config), ErrorReason::kFieldRequired, "layer_index",
                "every fourth before it");
  config.erase("num_hidden_layers");
  ExpectRefused(Read(config, 5), ErrorReason::kFieldRequired, "layer_index",
                "must have num_hidden_layers");
}

TEST(NopeTest, ListsOfLayersWithRopeDecide) {
  EXPECT_FALSE(IsNope(Read(Model("smollm3", {{"no_rope_layers", {1, 1}}}))));
  ExpectRefused(Read(Model("smollm3", {{"no_rope_layers", {1, 0}}}), 2),
                ErrorReason::kFieldInvalid, "layer_index",
                "2; no_rope_layers has 2 layers");
}

TEST(NopeTest, Llama4ScalesQueriesOfGlobalLayersUnlessToldNot) {
  json config = Model("llama4_text", {{"num_hidden_layers", 8}});
  EXPECT_FALSE(IsNope(Read(config, {}, "chunked_attention")));
  const auto global = Read(config, {}, "full_attention");
  EXPECT_TRUE(IsNope(global));
  EXPECT_TRUE(global->query_scale.has_value());
  for (const json& off : {json(false), json(0)}) {
    config["attn_temperature_tuning"] = off;
    EXPECT_FALSE(Read(config, 3)->query_scale.has_value()) << off;
  }
}

TEST(WidthTest, SharesAndSectionsThatCannotBeAreNamed) {
  const auto refused = [](const std::string& type, const json& more,
                          const std::string& text) {
    ExpectRefused(Read(Model(type, more)), ErrorReason::kModelConfigInvalid,
                  "config_json", text);
  };
  refused("glm4", {{"partial_rotary_factor", 1.5}},
          "partial_rotary_factor is 1.5; it must be in (0, 1]");
  refused("qwen2_vl", {{"rope_scaling", {{"mrope_section", {16, 24, 24.5}}}}},
          "rope_scaling.mrope_section has an element 24.5");
  refused("ernie4_5_vl", {{"rope_scaling", {{"mrope_section", {22, 42}}}}},
          "rope_scaling.mrope_section must have 3 elements");
  json no_length = Model(
      "llama", {{"rope_scaling",
                 {{"rope_type", "default"}, {"llama_4_scaling_beta", 0.1}}}});
  no_length.erase("max_position_embeddings");
  ExpectRefused(Read(no_length), ErrorReason::kModelConfigInvalid,
                "config_json",
                "max_position_embeddings is missing; llama_4_scaling_beta");
}

TEST(WidthTest, ClassesFillInTheirSections) {
  const auto qwen = Read(Model("qwen2_vl"));
  ASSERT_TRUE(qwen.ok()) << qwen.status();
  EXPECT_THAT(qwen->spec.axes->sections, testing::ElementsAre(16, 24, 24));
  // Published as height, width, time.
  const auto ernie = Read(Model("ernie4_5_vl"));
  ASSERT_TRUE(ernie.ok()) << ernie.status();
  EXPECT_THAT(ernie->spec.axes->sections, testing::ElementsAre(20, 22, 22));
}

TEST(WidthTest, LatentSlicesMayBeOfHalves) {
  const auto rope = Read(Model("deepseek_v3", {{"qk_nope_head_dim", 128},
                                               {"qk_rope_head_dim", 64},
                                               {"rope_interleave", false}}));
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->spec.pairing, Pairing::kHalfSplit);
}

}  // namespace
}  // namespace posenc::core
