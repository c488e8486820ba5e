// What files give single layers (core/model/layer_entries.h). The claims about
// transformers were tried with its 5.23.0.

#include "core/model/layer_entries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/fixtures/model.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

json Llama(const json& entries) {
  return {{"model_type", "llama"},
          {"hidden_size", 512},
          {"num_attention_heads", 8},
          {"num_hidden_layers", 4},
          {"head_dim", 64},
          {"rope_theta", 1e4},
          {"per_layer_config", entries}};
}

json Gemma(const json& entries, const json& more = json::object()) {
  json config = {{"model_type", "gemma4_text"},
                 {"hidden_size", 2304},
                 {"num_attention_heads", 8},
                 {"num_hidden_layers", 12},
                 {"head_dim", 256},
                 {"max_position_embeddings", 8192},
                 {"per_layer_config", entries}};
  config.update(more);
  return config;
}

absl::StatusOr<ResolvedRope> ReadLayers(const json& config,
                                        const std::string& type) {
  RopeSource source;
  source.source = ConfigJson{config.dump()};
  source.layer_type = type;
  return ResolveSource(source, 0, MissingLength::kError);
}

TEST(LayerEntriesTest, KeysThatAreNoIndicesAreErrors) {
  for (const char* const key : {"a", "", "-1", "1.5", " 1"}) {
    const absl::Status status =
        TryRead(Llama({{key, json::object()}}), Profile::kHf).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("is no index of a layer"));
  }
}

TEST(LayerEntriesTest, EntriesMustBeObjects) {
  for (const json& entry : {json(3), json("8"), json::array()}) {
    const absl::Status status =
        TryRead(Llama({{"1", entry}}), Profile::kHf).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("per_layer_config.1 is of type"));
  }
}

TEST(LayerEntriesTest, LayersThatTheModelDoesNotHaveAreSaid) {
  for (const char* const key : {"4", "04", "99999999999999999999"}) {
    EXPECT_TRUE(Warned(Read(Llama({{key, json::object()}}), Profile::kHf),
                       "is of no layer of the 4, from 0"))
        << key;
  }
  EXPECT_THAT(Read(Llama({{"3", json::object()}}), Profile::kHf).warnings,
              IsEmpty());
}

TEST(LayerEntriesTest, NullEntriesAreSaid) {
  EXPECT_TRUE(Warned(Read(Llama({{"1", nullptr}}), Profile::kHf),
                     "per_layer_config.1 is null, at which transformers"));
}

TEST(LayerEntriesTest, ARotaryKeyOfOneLayerIsNotReadAndSaid) {
  const ResolvedRope rope =
      Read(Llama({{"1", {{"head_dim", 128}}}}), Profile::kHf);
  EXPECT_EQ(rope.spec.rotary_dim, 64);
  EXPECT_TRUE(Warned(rope,
                     "per_layer_config.1.head_dim is 128, and head_dim is 64; "
                     "transformers' class of model_type llama reads one value "
                     "for all layers and refuses"));
  EXPECT_TRUE(Warned(
      Read(Llama({{"1", {{"rope_parameters", json::object()}}}}), Profile::kHf),
      "per_layer_config.1.rope_parameters is {}, and rope_parameters is "
      "absent"));
}

TEST(LayerEntriesTest, KeysThatDoNotRotateOrSayTheSameAreNoFault) {
  EXPECT_THAT(Read(Llama({{"0", {{"num_key_value_heads", 2}}},
                          {"1", {{"head_dim", 64}}},
                          {"2", {{"hidden_size", 1024}}}}),
                   Profile::kHf)
                  .warnings,
              IsEmpty());
}

TEST(LayerEntriesTest, GemmasEntriesCountBySixthLayersWithoutAList) {
  // The class makes layers 5 and 11 those of full attention.
  const json entries = {{"05", {{"head_dim", 512}}},
                        {"11", {{"head_dim", 512}}}};
  const auto full = ReadLayers(Gemma(entries), "full_attention");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->spec.rotary_dim, 512);
  EXPECT_THAT(full->warnings, IsEmpty());
  const auto local = ReadLayers(Gemma(entries), "sliding_attention");
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_EQ(local->spec.rotary_dim, 256);
}

TEST(LayerEntriesTest, LayersOfOneTypeWithTwoWidthsAreRefused) {
  for (const json& entries :
       {json{{"05", {{"head_dim", 512}}}},
        json{{"05", {{"head_dim", 512}}}, {"11", {{"head_dim", 128}}}}}) {
    const auto rope = ReadLayers(Gemma(entries), "full_attention");
    EXPECT_EQ(rope.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(rope.status().message()),
                HasSubstr("must have one width"));
  }
}

TEST(LayerEntriesTest, EntriesOfOneTypeThatDifferOtherwiseAreSaid) {
  const json types = {{"layer_types",
                       {"sliding_attention", "sliding_attention",
                        "full_attention", "sliding_attention"}},
                      {"num_hidden_layers", 4}};
  const auto rope = ReadLayers(
      Gemma({{"0", {{"num_key_value_heads", 1}}}, {"2", {{"head_dim", 512}}}},
            types),
      "full_attention");
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_TRUE(Warned(*rope,
                     "per_layer_config gives layers 0 and 1, both of type "
                     "sliding_attention, different keys"));
}

}  // namespace
}  // namespace posenc::core
