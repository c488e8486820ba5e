// Configurations in the formats of the reference implementations.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "core/model/config.h"
#include "core/model/json_object.h"

namespace posenc::core {

// Mistral's params.json: dim and n_heads in place of hidden_size and
// num_attention_heads. The same formats of others are refused, not misread.
bool IsMistralParams(const JsonObject& config);

// Means the same under every profile; errors go to the object's status, and
// those of the layer are returned.
absl::StatusOr<ModelRope> ReadMistralParams(
    const JsonObject& params, Profile profile,
    const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index);

// gpt-oss's own config.json: rope_scaling_factor and rope_ntk_alpha in place of
// rope_scaling.
bool IsGptOssConfig(const JsonObject& config);

// The same in the spelling of transformers; null where a value is of the wrong
// type, which sets the object's status.
nlohmann::json GptOssAsTransformers(const JsonObject& config);

// Step 3.5's own: rope_theta and partial_rotary_factors are lists, an element
// for each layer.
bool IsStepConfig(const JsonObject& config);

// The same as parameters of each type of layer, as transformers respells it.
nlohmann::json StepAsTransformers(const JsonObject& config);

}  // namespace posenc::core
