// Well-known models by name. Each is the rotary part of the config.json that
// the model was published with: core/interpretation/presets/<name>.json,
// compiled in.

#pragma once

#include <vector>

#include "absl/strings/string_view.h"

namespace posenc::core::interpretation {

struct Preset {
  absl::string_view name;
  absl::string_view config_json;
};

// All presets, sorted by name.
const std::vector<Preset>& Presets();

// Null if there is none of that name.
const Preset* FindPreset(absl::string_view name);

}  // namespace posenc::core::interpretation
