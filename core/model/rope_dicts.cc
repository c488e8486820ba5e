#include "core/model/rope_dicts.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/error.h"

namespace posenc::core {
namespace {

using nlohmann::json;

// The key whose dict counts: rope_scaling replaces rope_parameters, unless it
// is empty. Empty if neither is given.
std::string GivenKey(const JsonObject& config) {
  if (config.Has("rope_scaling") &&
      *config.Find("rope_scaling") != json::object()) {
    return "rope_scaling";
  }
  return config.Has("rope_parameters") ? "rope_parameters" : "";
}

bool IsNested(const ModelLayers& model, const JsonObject& dict) {
  for (const std::string& key : dict.Keys()) {
    if (dict.Find(key)->is_object() && IsLayerType(model, key)) return true;
  }
  return false;
}

std::string KindsOf(const Family& family, const json& class_dict) {
  std::vector<std::string> kinds;
  for (const LayerKind& kind : family.kinds) {
    if (!kind.type.empty()) kinds.emplace_back(kind.type);
  }
  if (kinds.empty() && class_dict.is_object()) {
    for (const auto& [key, value] : class_dict.items()) kinds.push_back(key);
  }
  return absl::StrJoin(kinds, ", ");
}

// If both spellings are given, rope_scaling replaces rope_parameters as a
// whole.
void WarnOfBothSpellings(const JsonObject& config,
                         std::vector<std::string>* warnings) {
  if (!config.Has("rope_scaling") || !config.Has("rope_parameters")) return;
  const auto bare = [&config](absl::string_view key) {
    json dict = *config.Find(key);
    if (!dict.is_object()) return dict;
    if (dict.contains("type") && !dict.contains("rope_type")) {
      dict["rope_type"] = dict["type"];
    }
    dict.erase("type");
    dict.erase("rope_theta");
    return dict;
  };
  const bool same = bare("rope_scaling") == bare("rope_parameters");
  warnings->push_back(absl::StrCat(
      config.Path("rope_parameters"),
      " is not read: rope_scaling, which is given too, replaces it",
      same ? "" : "; they differ"));
}

// Applies Family::dicts to a dict that is given.
void ApplyRule(const ModelLayers& model, const std::string& key,
               const json& class_dict, absl::Status* status, RopeDicts* dicts) {
  const DictRule rule = model.family.dicts;
  const std::string kinds = KindsOf(model.family, class_dict);
  const std::string text = Shortened(*model.config.Find(key));
  if (rule == DictRule::kNone) {
    // Cohere 2 MoE loses rope_scaling alone.
    dicts->scales =
        key == "rope_parameters" && model.family.theta_key == "rope_theta";
    return;
  }
  if (dicts->nested || rule == DictRule::kOne || rule == DictRule::kSplit) {
    return;
  }
  if (rule != DictRule::kNested && key == "rope_scaling") return;
  if (rule == DictRule::kMerged) {
    dicts->warnings.push_back(absl::StrCat(
        model.config.Path(key), " ", text, " is not read: transformers reads ",
        "entries for ", kinds,
        " there, and without them takes its class's bases, unscaled"));
    dicts->dict = JsonObject(nullptr, dicts->dict.Path(""), status);
    return;
  }
  const std::string one_for_all = absl::StrCat(
      " ", text, " is one dict for all layers, and the class of model_type ",
      model.model_type, " has an entry for each type: ", kinds);
  if (rule == DictRule::kTyped) {
    model.config.Fail(key, one_for_all.substr(1));
    return;
  }
  dicts->warnings.push_back(
      absl::StrCat(model.config.Path(key), one_for_all,
                   "; transformers refuses it, and it is read here as if "
                   "every type had it"));
}

}  // namespace

bool ReadsByClass(const ProfileRules& rules) {
  return rules.profile == Profile::kHf || rules.profile == Profile::kVllm;
}

RopeDicts ReadRopeDicts(const ModelLayers& model, const ProfileRules& rules,
                        const nlohmann::json& class_dict,
                        absl::Status* status) {
  const JsonObject& config = model.config;
  const std::string key = GivenKey(config);
  const bool by_class = ReadsByClass(rules);
  const bool from_class = key.empty() && class_dict.is_object() && by_class;
  RopeDicts dicts = {
      .dict = from_class ? JsonObject(&class_dict, "rope_parameters", status)
                         : config.Object(key.empty() ? "rope_parameters" : key),
      .from_class = from_class};
  WarnOfBothSpellings(config, &dicts.warnings);
  dicts.nested = IsNested(model, dicts.dict);
  // Dots 3 copies a flat dict for each type, so its kinds do not differ then.
  dicts.has_kinds = !model.family.kinds[0].type.empty() &&
                    (model.family.dicts != DictRule::kOne || !by_class ||
                     key.empty() || dicts.nested);
  if (by_class && !from_class && dicts.dict.Keys().empty() &&
      !dicts.has_kinds && model.family.dicts == DictRule::kNested) {
    config.Fail(
        "rope_parameters",
        absl::StrCat("is missing; the class of model_type ", model.model_type,
                     " has no default: give an entry for each type of "
                     "layer"));
  }
  bool known = false;
  FindFamily(model.model_type, &known);
  if (by_class && known && dicts.nested && !from_class && !dicts.has_kinds &&
      model.family.dicts == DictRule::kOne) {
    dicts.warnings.push_back(absl::StrCat(
        config.Path(key),
        " has entries for types of layers, and transformers' "
        "class of model_type ",
        model.model_type,
        " reads one dict for all layers: it fails, or takes its default base "
        "unscaled; the entry is used here"));
  }
  if (by_class && !dicts.dict.Keys().empty() && !from_class) {
    ApplyRule(model, key, class_dict, status, &dicts);
  }
  return dicts;
}

}  // namespace posenc::core
