#include "core/interpretation/presets.h"

#include <algorithm>

namespace posenc::core::interpretation {

const std::vector<Preset>& Presets() {
  static const auto& presets = *[] {
    auto* sorted = new std::vector<Preset>{
#include "preset_data.inc"
    };
    std::sort(sorted->begin(), sorted->end(),
              [](const Preset& a, const Preset& b) { return a.name < b.name; });
    return sorted;
  }();
  return presets;
}

const Preset* FindPreset(absl::string_view name) {
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

}  // namespace posenc::core::interpretation
