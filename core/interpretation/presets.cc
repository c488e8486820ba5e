#include "core/interpretation/presets.h"

namespace posenc::core::interpretation {
namespace {

constexpr Preset kPresets[] = {
#include "preset_data.inc"
};

}  // namespace

absl::Span<const Preset> Presets() { return kPresets; }

const Preset* FindPreset(absl::string_view name) {
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

std::optional<absl::string_view> ConfigOf(const RopeSource& source) {
  if (const auto* config = std::get_if<ConfigJson>(&source.source)) {
    return config->text;
  }
  const auto* name = std::get_if<PresetName>(&source.source);
  const Preset* preset = name == nullptr ? nullptr : FindPreset(name->name);
  if (preset == nullptr) return std::nullopt;
  return preset->config_json;
}

}  // namespace posenc::core::interpretation
