#include "core/interpretation/preset_default.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/interpretation/compare.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/presets.h"
#include "core/interpretation/resolve_json.h"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;

// True for a key that affects rotation and for which a class may have a
// default.
bool IsRotary(absl::string_view key) {
  return key == "rope_scaling" || key == "rope_parameters" ||
         absl::EndsWith(key, "rope_theta") || key == "rotary_emb_base" ||
         key == "rope_local_base_freq" || key == "partial_rotary_factor" ||
         key == "rotary_pct";
}

json WithoutRotaryKeys(const json& config) {
  json bare = json::object();
  for (const auto& [key, value] : config.items()) {
    if (IsRotary(key)) continue;
    bare[key] = value.is_object() ? WithoutRotaryKeys(value) : value;
  }
  return bare;
}

}  // namespace

std::optional<Assumption> DifferenceFromDefault(const RopeSource& source,
                                                const ResolvedRope& rope) {
  const auto* name = std::get_if<PresetName>(&source.source);
  const Preset* preset = name == nullptr ? nullptr : FindPreset(name->name);
  if (preset == nullptr || source.profile != Profile::kHf) return std::nullopt;
  const json published = ParseText(preset->config_json).value;
  RopeSource bare = source;
  bare.head_dim = rope.head_dim;
  const auto otherwise = ResolveJson(WithoutRotaryKeys(published), bare,
                                     MissingLength::kAssumeOriginal);
  if (!otherwise.ok()) return std::nullopt;  // the class has no default
  const RopeDifference difference = CompareRopes(*otherwise, rope);
  if (difference.equal) return std::nullopt;
  return Assumption{
      "preset", name->name,
      absl::StrCat("as published; transformers' default for model_type ",
                   published.value("model_type", ""),
                   " differs: ", absl::StrJoin(difference.explanations, "; "))};
}

}  // namespace posenc::core::interpretation
