#include "core/interpretation/claimed_length.h"

#include <variant>

#include "core/doctor/config_case.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/presets.h"

namespace posenc::core {

std::int64_t ClaimedLength(const RopeSource& source) {
  if (const auto* config = std::get_if<ConfigJson>(&source.source)) {
    return ClaimedLength(ParseConfig(config->text));
  }
  if (const auto* name = std::get_if<PresetName>(&source.source)) {
    const Preset* const preset = FindPreset(name->name);
    if (preset != nullptr)
      return ClaimedLength(ParseConfig(preset->config_json));
  }
  return 0;
}

}  // namespace posenc::core
