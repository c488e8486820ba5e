// Reads the part of a configuration that describes a language model: which of
// its layers is meant, and what that layer is rotated by.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

// `status` is the one that `config` sets; it must be OK. Errors are
// ReadModelConfig()'s.
absl::StatusOr<ModelRope> ReadLanguageModel(
    const JsonObject& config, const std::string& model_type,
    const ProfileVersion& reader, const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index, absl::Status* status);

}  // namespace posenc::core::interpretation
