#include "core/doctor/merged_override.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/interpretation/families.h"

namespace posenc::core::doctor {
namespace {

using nlohmann::json;

// Returns the model's rotary keys other than scaling: base, share, sections.
json OwnKeys(const ConfigCase& config, const ResolvedRope& rope) {
  json own = json::object();
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const auto dict = config.part().find(name);
    if (dict == config.part().end() || !dict->is_object()) continue;
    for (const auto& [key, value] : dict->items()) {
      if (!IsScalingKey(key)) own[key] = value;
    }
  }
  if (rope.spec.rope_theta) own["rope_theta"] = *rope.spec.rope_theta;
  const interpretation::Family& family = config.family();
  const bool has_share =
      family.width == interpretation::RotaryWidth::kPartial ||
      family.width == interpretation::RotaryWidth::kRotaryDimElsewhere;
  if (has_share && rope.spec.rotary_dim < rope.head_dim &&
      !own.contains("partial_rotary_factor")) {
    own["partial_rotary_factor"] =
        config.Number(family.partial_key)
            .value_or(static_cast<double>(rope.spec.rotary_dim) /
                      static_cast<double>(rope.head_dim));
  }
  return own;
}

bool HasSameAxes(const RopeSpec& a, const RopeSpec& b) {
  if (!a.axes || !b.axes) return a.axes.has_value() == b.axes.has_value();
  return a.axes->sections == b.axes->sections;
}

}  // namespace

std::optional<json> MergedOverride(const ConfigCase& config,
                                   const json& scaling) {
  if (config.reference() == nullptr || config.groups().size() != 1) {
    return std::nullopt;
  }
  const ResolvedRope& rope = *config.reference()->ropes[0];
  json dict = OwnKeys(config, rope);
  dict.update(scaling);
  // The configuration that an engine then has: it no longer reads the keys
  // beside the dict.
  const json changed = config.Changed([&](json* part) {
    for (const std::string& key :
         {std::string("rope_scaling"), std::string("rope_theta"),
          std::string("partial_rotary_factor"),
          std::string(config.family().theta_key),
          std::string(config.family().partial_key)}) {
      part->erase(key);
    }
    (*part)["rope_parameters"] = dict;
  });
  const auto taken = config.ResolveOther(changed)[0];
  if (!taken || taken->spec.rotary_dim != rope.spec.rotary_dim ||
      !HasSameAxes(taken->spec, rope.spec) ||
      // Some classes do not scale.
      (scaling.contains("factor") && taken->spec.scaling.index() == 0) ||
      (!scaling.contains("rope_theta") &&
       taken->spec.rope_theta != rope.spec.rope_theta)) {
    return std::nullopt;
  }
  json override = std::move(dict);
  const std::vector<std::string> steps =
      absl::StrSplit(config.KeyPath("rope_parameters"), '.');
  for (std::size_t i = steps.size(); i-- > 0;) {
    json outer = json::object();
    outer[steps[i]] = std::move(override);
    override = std::move(outer);
  }
  return override;
}

}  // namespace posenc::core::doctor
