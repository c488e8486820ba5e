// Reads the part of a configuration that describes a language model: which of
// its layers is meant, and what that layer is rotated by.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

// Errors, which are ReadModelConfig()'s, go to the report of `config`.
ModelRope ReadLanguageModel(const JsonObject& config,
                            const std::string& model_type,
                            const ProfileVersion& reader,
                            const std::optional<std::string>& layer_type,
                            const std::optional<std::int32_t>& layer_index);

}  // namespace posenc::core::interpretation
