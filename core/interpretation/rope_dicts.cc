#include "core/interpretation/rope_dicts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/error.h"
#include "core/interpretation/provenance.h"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;

// The key whose dict counts; empty if none is given that does. rope_scaling
// replaces rope_parameters in transformers, unless it is empty.
std::string GivenKey(const JsonObject& config, ReadingRule spelling) {
  const bool newer = config.Has("rope_parameters");
  const bool older = config.Has("rope_scaling") &&
                     *config.Find("rope_scaling") != json::object();
  if (spelling == ReadingRule::kParametersReplace && newer) {
    return "rope_parameters";
  }
  if (older) return "rope_scaling";
  const bool reads_newer = spelling == ReadingRule::kScalingReplaces ||
                           spelling == ReadingRule::kParametersFill;
  return newer && reads_newer ? "rope_parameters" : "";
}

bool IsNested(const ModelLayers& model, const JsonObject& dict) {
  // Nothing but null for a type of layer is an entry, too.
  const bool is_flat = dict.Find("rope_type") != nullptr ||
                       dict.Find("type") != nullptr ||
                       dict.Find("rope_theta") != nullptr;
  for (const std::string& key : dict.Keys()) {
    const json& entry = *dict.Find(key);
    if ((entry.is_object() || (entry.is_null() && !is_flat)) &&
        IsLayerType(model, key)) {
      return true;
    }
  }
  return false;
}

// The types of layers that the class looks for in a nested dict.
std::vector<std::string> NeededTypes(const ModelLayers& model,
                                     const json& class_dict) {
  const std::vector<std::string> of_layers = LayerTypes(model.config);
  std::vector<std::string> kinds;
  for (const LayerKind& kind : model.family.kinds) {
    if (!kind.type.empty()) kinds.emplace_back(kind.type);
  }
  if (kinds.empty() && class_dict.is_object()) {
    for (const auto& [key, value] : class_dict.items()) {
      if (value.is_object() || value.is_null()) kinds.push_back(key);
    }
  }
  if (kinds.empty() && model.family.dicts == DictRule::kNested) {
    kinds = of_layers;
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  }
  if (kinds.empty() || of_layers.empty()) return kinds;
  std::vector<std::string> needed;
  for (const std::string& kind : kinds) {
    const bool is_layers = kind != "main" && kind != "compress";
    if (!is_layers ||
        std::count(of_layers.begin(), of_layers.end(), kind) > 0) {
      needed.push_back(kind);
    }
  }
  return needed;
}

// A class that keeps an entry for each type fails at one that is missing.
void WarnOfMissingTypes(const ModelLayers& model, const json& class_dict,
                        RopeDicts* dicts) {
  for (const std::string& type : NeededTypes(model, class_dict)) {
    const json* entry = dicts->dict.Find(type);
    if (entry != nullptr && entry->is_null() &&
        model.model_type == "deepseek_v4") {
      Warn(&dicts->warnings, dicts->dict, type,
           " is null: transformers' class of model_type deepseek_v4 then takes "
           "neither entry, but rope_theta and compress_rope_theta; it is read "
           "as no rope");
      continue;
    }
    if (entry != nullptr &&
        (!entry->is_null() || model.model_type != "dots3_note")) {
      continue;
    }
    Warn(&dicts->warnings, dicts->dict, type,
         entry == nullptr ? " is absent" : " is null",
         ", and the class of model_type ", model.model_type,
         " needs an entry for ", type, ": transformers fails");
  }
}

// An empty dict is none here, and transformers fails at one in a class that
// keeps an entry for each type.
void WarnOfEmpty(const JsonObject& config, std::vector<std::string>* warnings) {
  for (const absl::string_view key : {"rope_scaling", "rope_parameters"}) {
    const json* dict = config.Find(key);
    if (dict == nullptr || *dict != json::object()) continue;
    Warn(warnings, config, key,
         " is {}, in which transformers looks for entries of "
         "layers' types, and fails; read as absent");
  }
}

// Entries for what is no type of the class's layers, and such as are no dicts.
void WarnOfStrangeTypes(const ModelLayers& model, const std::string& key,
                        std::vector<std::string>* warnings) {
  const JsonObject dict = model.config.PeekObject(key);
  for (const std::string& type : dict.Keys()) {
    bool is_known = false;
    for (const LayerKind& kind : model.family.kinds) {
      is_known = is_known || kind.type == type;
    }
    if (is_known && dict.Find(type)->is_object()) continue;
    Warn(warnings, dict, type, " is ", Shortened(*dict.Find(type)),
         "; the class of model_type ", model.model_type,
         " takes dicts for its types of layers alone, and "
         "transformers refuses the file");
  }
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

// The spelling that the reader leaves out, beside what it reads.
void WarnOfUnread(const ModelLayers& model, const ProfileRules& rules,
                  const std::string& key, const ReadingRow& spelling,
                  std::vector<std::string>* warnings) {
  const JsonObject& config = model.config;
  if (!config.Has("rope_parameters")) return;
  const std::string whose =
      spelling.families.empty()
          ? std::string(rules.project)
          : absl::StrCat(rules.project, "'s class of model_type ",
                         model.model_type);
  const std::string given = Shortened(*config.Find("rope_parameters"));
  if (spelling.rule == ReadingRule::kParametersUnread) {
    const bool scales = config.Has("rope_scaling");
    Warn(warnings, config, "rope_parameters", " ", given,
         " is not read: ", whose, " ", spelling.says, "; ",
         config.Has("rope_theta") ? "rope_theta is given" : "rope_theta is not",
         scales ? ", rope_scaling too" : ", and nothing is scaled");
    return;
  }
  if (spelling.rule == ReadingRule::kParametersBase) {
    const json* dict = config.Find("rope_parameters");
    if (!dict->is_object() || dict->size() <= dict->count("rope_theta")) return;
    const json type = dict->value("rope_type", dict->value("type", json()));
    if (dict->size() == dict->count("rope_theta") + dict->count("rope_type") +
                            dict->count("type") &&
        type == "default") {
      return;
    }
    Warn(warnings, config, "rope_parameters", " ", given,
         " is read for its rope_theta alone: ", whose, " ", spelling.says);
    return;
  }
  if (!config.Has("rope_scaling")) return;
  const std::string other =
      key == "rope_parameters" ? "rope_scaling" : "rope_parameters";
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
  Warn(warnings, config, other,
       same ? "" : absl::StrCat(" ", Shortened(*config.Find(other))),
       " is not read: ", key.empty() ? "rope_scaling" : key,
       ", which is given too, replaces it in ", rules.project,
       same ? ""
            : absl::StrCat(
                  " by ",
                  Shortened(*config.Find(key.empty() ? "rope_scaling" : key)),
                  "; they differ"));
}

// Applies Family::dicts to a dict that is given.
void ApplyRule(const ModelLayers& model, const std::string& key,
               const json& class_dict, absl::Status* status, RopeDicts* dicts) {
  const DictRule rule = model.family.dicts;
  const std::string kinds = KindsOf(model.family, class_dict);
  const std::string text = Shortened(*model.config.Find(key));
  if (rule == DictRule::kNone) {
    if (model.model_type == "cohere2_moe" && key == "rope_parameters" &&
        dicts->dict.Find("rope_theta") == nullptr &&
        !dicts->dict.Keys().empty()) {
      Warn(&dicts->warnings, dicts->dict, "rope_theta",
           " is absent, which transformers' class of model_type ",
           model.model_type, " refuses");
    }
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
    Warn(&dicts->warnings, model.config, key, " ", text,
         " is not read: transformers reads ", "entries for ", kinds,
         " there, and without them takes its class's bases, unscaled");
    dicts->dict = JsonObject(nullptr, dicts->dict.Path(), status);
    return;
  }
  const std::string one_for_all = absl::StrCat(
      " ", text, " is one dict for all layers, and the class of model_type ",
      model.model_type, " has an entry for each type: ", kinds);
  if (rule == DictRule::kTyped) {
    model.config.Fail(key, one_for_all.substr(1));
    return;
  }
  Warn(&dicts->warnings, model.config, key, one_for_all,
       "; transformers refuses it, and it is read here as if "
       "every type had it");
}

}  // namespace

bool ReadsByClass(const ProfileRules& rules) {
  return rules.profile == Profile::kHf || rules.vllm_modules;
}

RopeDicts ReadRopeDicts(const ModelLayers& model, const ProfileRules& rules,
                        const nlohmann::json& class_dict,
                        absl::Status* status) {
  const JsonObject& config = model.config;
  const ReadingRow& spelling =
      SpellingRow(rules.profile, rules.version, model.model_type);
  const std::string key = GivenKey(config, spelling.rule);
  const bool by_class = ReadsByClass(rules);
  const bool from_class = key.empty() && class_dict.is_object() && by_class;
  RopeDicts dicts = {
      .dict = from_class ? JsonObject(&class_dict, "rope_parameters", status)
              : key.empty()
                  ? JsonObject(nullptr, config.Path("rope_parameters"), status)
                  : config.Object(key),
      .from_class = from_class};
  WarnOfUnread(model, rules, key, spelling, &dicts.warnings);
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
  const DictRule rule = model.family.dicts;
  if (by_class && rule == DictRule::kNested) {
    WarnOfEmpty(config, &dicts.warnings);
  }
  // The table has Kyutai's speech-to-text in full, model_type without "_text".
  bool known = false;
  FindFamily(model.model_type, &known);
  if (!known) FindFamily(absl::StrCat(model.model_type, "_text"), &known);
  if (by_class && known && dicts.nested && !from_class && !dicts.has_kinds &&
      model.family.dicts == DictRule::kOne) {
    Warn(&dicts.warnings, config, key,
         " has entries for types of layers, and transformers' "
         "class of model_type ",
         model.model_type,
         " reads one dict for all layers: it fails, or takes its default base "
         "unscaled; the entry is used here");
  }
  if (by_class && !from_class && dicts.nested && rule != DictRule::kMerged &&
      rule != DictRule::kTyped) {
    WarnOfMissingTypes(model, class_dict, &dicts);
  }
  if ((rule == DictRule::kTyped || model.model_type == "neomme") && by_class &&
      config.Has("rope_parameters")) {
    WarnOfStrangeTypes(model, "rope_parameters", &dicts.warnings);
  }
  if (by_class && !dicts.dict.Keys().empty() && !from_class) {
    ApplyRule(model, key, class_dict, status, &dicts);
  }
  return dicts;
}

}  // namespace posenc::core::interpretation
