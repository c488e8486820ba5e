// Configurations in the formats of the reference implementations.

#pragma once

#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

// True for Mistral's params.json: it has dim and n_heads in place of
// hidden_size and num_attention_heads. Other projects' params.json have them,
// too; those are refused later, not misread.
bool IsMistralParams(const JsonObject& config);

// A configuration in the spelling of transformers, and the file's keys for
// those of its keys that the file has not, all of them in full.
struct Respelled {        // NOLINT(bugprone-exception-escape)
  nlohmann::json config;  // null for a file that need not be respelled
  GivenKeys given;
};

// A params.json, which means under every profile what it means to Mistral.
Respelled MistralAsTransformers(const JsonObject& params);

// True for gpt-oss's own config.json, which has rope_scaling_factor and
// rope_ntk_alpha in place of rope_scaling.
bool IsGptOssConfig(const JsonObject& config);

Respelled GptOssAsTransformers(const JsonObject& config);

// True for the arguments of Megatron-LM, as its checkpoints hold them: with
// rotary_base or rotary_percent, and no model_type.
bool IsMegatronArgs(const JsonObject& config);

Respelled MegatronAsTransformers(const JsonObject& args);

// True for Step 3.5's own, whose rope_theta and partial_rotary_factors are
// lists with an element for each layer.
bool IsStepConfig(const JsonObject& config);

// The same configuration with parameters for each type of layer, as
// transformers respells it.
Respelled StepAsTransformers(const JsonObject& config);

}  // namespace posenc::core::interpretation
