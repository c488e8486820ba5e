// Configurations in the formats of the reference implementations.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "core/model/config.h"
#include "core/model/json_object.h"

namespace posenc::core {

// True for Mistral's params.json: it has dim and n_heads in place of
// hidden_size and num_attention_heads. Other projects' params.json have them,
// too; those are refused later, not misread.
bool IsMistralParams(const JsonObject& config);

// Reads it. It means the same under every profile. Values of the wrong type set
// the object's status; errors that concern the layer are returned.
absl::StatusOr<ModelRope> ReadMistralParams(
    const JsonObject& params, Profile profile,
    const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index);

// True for gpt-oss's own config.json, which has rope_scaling_factor and
// rope_ntk_alpha in place of rope_scaling.
bool IsGptOssConfig(const JsonObject& config);

// The same configuration in the spelling of transformers; null if a value is of
// the wrong type, which sets the object's status.
nlohmann::json GptOssAsTransformers(const JsonObject& config);

// True for Step 3.5's own, whose rope_theta and partial_rotary_factors are
// lists with an element for each layer.
bool IsStepConfig(const JsonObject& config);

// The same configuration with parameters for each type of layer, as
// transformers respells it.
nlohmann::json StepAsTransformers(const JsonObject& config);

// True for ChatGLM's own, in which rope_ratio may multiply the base.
bool IsChatGlmConfig(const JsonObject& config);

// The same configuration with rope_theta. ChatGLM-6B's two positions for a head
// set the object's status.
nlohmann::json ChatGlmAsTransformers(const JsonObject& config);

}  // namespace posenc::core
