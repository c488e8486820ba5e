// Well-known models by name. Each preset is the rotary part of the config.json
// with which the model was published. The file
// core/interpretation/presets/<name>.json is compiled in.

#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/interpretation/source.h"

namespace posenc::core::interpretation {

struct Preset {
  absl::string_view name;
  absl::string_view config_json;
};

// All presets, sorted by name.
absl::Span<const Preset> Presets();

// Returns null if no preset has that name.
const Preset* FindPreset(absl::string_view name);

// Returns the text of a source's config.json or preset; nullopt for other
// sources and for unknown presets.
std::optional<absl::string_view> ConfigOf(const RopeSource& source);

}  // namespace posenc::core::interpretation
