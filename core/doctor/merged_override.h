// Overrides of rope_parameters that keep the model's other keys: engines
// replace the whole dict.

#pragma once

#include <optional>

#include "core/doctor/config_case.h"
#include "nlohmann/json.hpp"

namespace posenc::core::doctor {

// Returns the model's own dict with the keys of `scaling`, as an override of
// its configuration. Nullopt if one dict cannot express it, for example because
// each layer type has its own dict.
std::optional<nlohmann::json> MergedOverride(const ConfigCase& config,
                                             const nlohmann::json& scaling);

}  // namespace posenc::core::doctor
