#include "core/interpretation/claimed_length.h"

#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "core/interpretation/composite.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/presets.h"

namespace posenc::core::interpretation {
namespace {

std::int64_t LengthOfText(absl::string_view text) {
  const nlohmann::json root = ParseConfig(text);
  Report ignored;
  return ClaimedLength(JsonObject(&root, "", &ignored));
}

}  // namespace

std::int64_t ClaimedLength(const RopeSource& source) {
  if (const auto* config = std::get_if<ConfigJson>(&source.source)) {
    return LengthOfText(config->text);
  }
  if (const auto* name = std::get_if<PresetName>(&source.source)) {
    const Preset* const preset = FindPreset(name->name);
    if (preset != nullptr) return LengthOfText(preset->config_json);
  }
  return 0;
}

std::int64_t ClaimedLength(const JsonObject& root) {
  std::string ignored;
  const JsonObject part = LanguagePart(root, &ignored);
  for (const char* key : {"max_position_embeddings", "n_positions",
                          "max_seq_len", "seq_length", "max_seqlen"}) {
    for (const JsonObject* object : {&part, &root}) {
      const nlohmann::json* value = object->Find(key);
      if (value == nullptr || !value->is_number()) continue;
      const double length = value->get<double>();
      if (length >= 1 && length <= 0x1p31) {
        return static_cast<std::int64_t>(length);
      }
    }
  }
  return 0;
}

}  // namespace posenc::core::interpretation
