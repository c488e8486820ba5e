// Overrides of rope_parameters that keep what a model has: engines replace the
// whole dict.

#pragma once

#include <optional>

#include "core/doctor/config_case.h"
#include "nlohmann/json.hpp"

namespace posenc::core::doctor {

// The model's own dict with the keys of `scaling`, as an override of its
// configuration. Nullopt where one dict cannot say it, as of layers that have
// one each.
std::optional<nlohmann::json> MergedOverride(const ConfigCase& config,
                                             const nlohmann::json& scaling);

}  // namespace posenc::core::doctor
