// ReadRopeDicts() of language_config.h.

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/interpretation/formats/language_config.h"

namespace posenc::core::interpretation {
namespace {

// Returns the key of the dict that applies; empty if the file gives no such
// dict. In transformers rope_scaling replaces rope_parameters, unless
// rope_scaling is empty.
std::string GivenKey(const JsonObject& config, ReadingRule spelling) {
  const bool newer = config.Has("rope_parameters");
  const bool older =
      config.Has("rope_scaling") && config.At("rope_scaling") != json::object();
  if (spelling == ReadingRule::kParametersReplace && newer) {
    return "rope_parameters";
  }
  if (older) return "rope_scaling";
  const bool reads_newer = spelling == ReadingRule::kScalingReplaces ||
                           spelling == ReadingRule::kParametersFill;
  return newer && reads_newer ? "rope_parameters" : "";
}

// Returns the layer types for which the class has default parameters.
std::vector<std::string> KindsOf(const Family& family, const json& class_dict) {
  std::vector<std::string> kinds;
  for (const LayerKind& kind : family.kinds) {
    if (!kind.type.empty()) kinds.emplace_back(kind.type);
  }
  if (!kinds.empty() || !class_dict.is_object()) return kinds;
  for (const auto& [key, value] : class_dict.items()) {
    if (value.is_object() || value.is_null()) kinds.push_back(key);
  }
  return kinds;
}

// Returns the layer types that the class looks for in a nested dict.
std::vector<std::string> NeededTypes(const Model& model,
                                     const json& class_dict) {
  std::vector<std::string> of_layers = LayerTypes(model.config);
  if (of_layers.empty() && model.family.full_every == 1) {
    of_layers = {"full_attention"};
  }
  std::vector<std::string> kinds = KindsOf(model.family, class_dict);
  if (kinds.empty() && model.family.dicts == DictRule::kNested) {
    const std::set<std::string> each(of_layers.begin(), of_layers.end());
    kinds.assign(each.begin(), each.end());
  }
  if (of_layers.empty()) return kinds;
  std::erase_if(kinds, [&](const std::string& kind) {
    return IsTransformersType(kind) &&
           std::count(of_layers.begin(), of_layers.end(), kind) == 0;
  });
  return kinds;
}

bool IsNested(const Model& model, const json& class_dict,
              const JsonObject& dict) {
  if (model.by_class() && model.family.all_entries) {
    const std::vector<std::string> types = NeededTypes(model, class_dict);
    return std::all_of(types.begin(), types.end(), [&](const auto& type) {
      return dict.At(type).is_object();
    });
  }
  // In a dict that is not flat, an entry for a layer type may be null.
  const bool is_flat = dict.Contains("rope_type") || dict.Contains("type") ||
                       dict.Contains("rope_theta");
  for (const std::string& key : dict.Keys()) {
    const json& entry = dict.At(key);
    if ((entry.is_object() || (entry.is_null() && !is_flat)) &&
        IsLayerType(model, key)) {
      return true;
    }
  }
  return false;
}

// Refuses an entry whose key is the older name of a layer type, because no
// layer would find this entry.
void CheckNames(const JsonObject& dict) {
  for (const std::string& key : dict.Keys()) {
    const std::string newer = Renamed(key);
    if (newer == key || !dict.At(key).is_object()) continue;
    dict.Fail(key, "is an entry by an older name of a layer type, and readers ",
              "look for ", newer, ": rename it");
  }
}

// Warns if a layer type's entry is missing, or is null in a class that fails at
// null. A class with an entry for each layer type fails if an entry is missing.
void WarnOfMissingTypes(const Model& model, const json& class_dict,
                        const JsonObject& dict) {
  const ReadingRow* const at_null =
      ClassRow(model.model_type, ReadingRule::kFailsAtNullEntry);
  for (const std::string& type : NeededTypes(model, class_dict)) {
    if (!dict.Contains(type)) {
      dict.Warn(type, " is absent, and the class of model_type ",
                model.model_type, " needs an entry for ", type,
                ": transformers fails");
    } else if (dict.At(type).is_null() && at_null != nullptr) {
      dict.Warn(type, " is null: ", ClassOf(model.model_type), " ",
                at_null->says);
    }
  }
}

// Warns of an empty dict. posenc treats the dict as absent, but transformers
// fails if the class has an entry for each layer type.
void WarnOfEmpty(const JsonObject& config) {
  for (const absl::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (config.At(key) != json::object()) continue;
    config.Warn(key,
                " is {}, and transformers looks in it for entries of layers' "
                "types and fails; read as absent");
  }
}

// Warns of entries for unknown layer types, and of entries that are not dicts.
void WarnOfStrangeTypes(const Model& model) {
  const JsonObject dict = model.config.Peek().Object("rope_parameters");
  for (const std::string& type : dict.Keys()) {
    const bool is_known = type == model.family.kinds[0].type ||
                          type == model.family.kinds[1].type;
    if (is_known && dict.At(type).is_object()) continue;
    dict.Warn(type, " is ", Shortened(dict.At(type)),
              "; the class of model_type ", model.model_type,
              " takes only dicts for its types of layers, and transformers "
              "refuses the file");
  }
}

// Returns the dict without rope_theta, and with `type` renamed to rope_type, so
// that two spellings of one dict compare equal.
json Bare(json dict) {
  if (!dict.is_object()) return dict;
  if (dict.contains("type") && !dict.contains("rope_type")) {
    dict["rope_type"] = dict["type"];
  }
  dict.erase("type");
  dict.erase("rope_theta");
  return dict;
}

// Warns if the reader ignores rope_parameters or rope_scaling because it reads
// the other dict.
void WarnOfUnread(const Model& model, const std::string& key,
                  const ReadingRow& spelling) {
  const JsonObject& config = model.config;
  if (!config.Has("rope_parameters")) return;
  const std::string whose = spelling.families.empty()
                                ? std::string(model.rules.project)
                                : model.Class();
  const json& newer = config.At("rope_parameters");
  if (spelling.rule == ReadingRule::kParametersUnread) {
    config.Warn(
        "rope_parameters", " ", Shortened(newer), " is not read: ", whose, " ",
        spelling.says, "; ",
        config.Has("rope_theta") ? "rope_theta is given" : "rope_theta is not",
        config.Has("rope_scaling") ? ", rope_scaling too"
                                   : ", and nothing is scaled");
    return;
  }
  if (spelling.rule == ReadingRule::kParametersBase) {
    const json bare = Bare(newer);
    if (!bare.is_object() || bare.empty() ||
        bare == json{{"rope_type", "default"}}) {
      return;
    }
    config.Warn("rope_parameters", " ", Shortened(newer),
                " is read for its rope_theta alone: ", whose, " ",
                spelling.says);
    return;
  }
  if (!config.Has("rope_scaling")) return;
  const json& older = config.At("rope_scaling");
  const bool takes_newer = key == "rope_parameters";
  const bool same = Bare(older) == Bare(newer);
  const json& taken = takes_newer ? newer : older;
  const json& left = takes_newer ? older : newer;
  config.Warn(
      takes_newer ? "rope_scaling" : "rope_parameters",
      same ? "" : absl::StrCat(" ", Shortened(left)),
      " is not read: ", takes_newer ? "rope_parameters" : "rope_scaling",
      ", which is given too, replaces it in ", model.rules.project,
      same ? "" : absl::StrCat(" by ", Shortened(taken), "; they differ"));
}

// Applies Family::dicts to a dict from the file.
void ApplyRule(const Model& model, const std::string& key,
               const json& class_dict, RopeDicts* dicts) {
  const DictRule rule = model.family.dicts;
  if (rule == DictRule::kNone) {
    // Cohere 2 MoE reads rope_parameters, but not rope_scaling.
    dicts->scales =
        key == "rope_parameters" && model.family.theta_key == "rope_theta";
    return;
  }
  if (dicts->nested || rule == DictRule::kOne || rule == DictRule::kSplit ||
      (rule != DictRule::kNested && key == "rope_scaling")) {
    return;
  }
  const std::string kinds =
      absl::StrJoin(KindsOf(model.family, class_dict), ", ");
  const std::string text = Shortened(model.config.At(key));
  if (rule == DictRule::kMerged) {
    model.config.Warn(key, " ", text,
                      " is not read: transformers reads entries for ", kinds,
                      " there, and without them takes its class's bases, "
                      "unscaled");
    dicts->dict = dicts->dict.With(nullptr);
    return;
  }
  const std::string one_for_all = absl::StrCat(
      text, " is one dict for all layers, and the class of model_type ",
      model.model_type, " has an entry for each type: ", kinds);
  if (rule == DictRule::kTyped) {
    model.config.Fail(key, one_for_all);
    return;
  }
  model.config.Warn(key, " ", one_for_all,
                    "; transformers refuses it, and it is read here as if "
                    "every type had it");
}

// Classes with kMerged or kTyped merge rope_scaling into the entries of
// rope_parameters. Other classes, and classes with all_entries, use only one of
// the two dicts.
void MergeScaling(const Model& model, RopeDicts* dicts) {
  const JsonObject& config = model.config;
  if (!model.family.merges_dicts() || model.family.all_entries ||
      !config.Has("rope_parameters") || !config.Has("rope_scaling")) {
    return;
  }
  const json& scaling = config.At("rope_scaling");
  json merged = config.At("rope_parameters");
  GivenKeys given;
  for (const LayerKind& kind : model.family.kinds) {
    const std::string type(kind.type);
    if (!kind.scaled || !scaling.is_object() || !merged.is_object() ||
        !merged.contains(type) || !merged[type].is_object()) {
      continue;
    }
    merged[type].update(scaling);
    for (const auto& [key, value] : scaling.items()) {
      given[absl::StrCat(config.Path("rope_parameters"), ".", type, ".", key)] =
          absl::StrCat(config.Path("rope_scaling"), ".", key);
    }
  }
  if (given.empty()) return;
  dicts->merged = std::make_shared<const json>(std::move(merged));
  dicts->dict = JsonObject(dicts->merged.get(), config.Path("rope_parameters"),
                           &config.report(),
                           std::make_shared<const GivenKeys>(std::move(given)));
}

// Warns of entries that a class with all_entries does not take, and of keys
// next to entries that a class takes.
void WarnOfKeysBesideEntries(const Model& model, const RopeDicts& dicts) {
  const JsonObject& dict = dicts.dict;
  for (const std::string& key : dict.Keys()) {
    const json& value = dict.At(key);
    if (dicts.nested
            ? IsLayerType(model, key) || value.is_object() || value == "default"
            : !model.family.all_entries || !value.is_object()) {
      continue;
    }
    dict.MarkRead(key);
    dict.Warn(key, " ", Shortened(value),
              " is not read: ", ClassOf(model.model_type), " reads ",
              dicts.nested ? "only entries for types of layers there"
                           : "entries only if each type of layer has one");
  }
}

// Reports errors and warnings about how transformers' class reads the dict, and
// applies the rules of the class to `dicts`.
void CheckByClass(const Model& model, const std::string& key,
                  const json& class_dict, RopeDicts* dicts) {
  const JsonObject& config = model.config;
  const DictRule rule = model.family.dicts;
  const bool is_empty = dicts->dict.Keys().empty();
  if (is_empty && !dicts->from_class && !dicts->has_kinds &&
      rule == DictRule::kNested) {
    config.Fail("rope_parameters", "is missing; the class of model_type ",
                model.model_type,
                " has no default: give an entry for each type of layer");
  }
  if (rule == DictRule::kNested && !model.family.fills_in()) {
    WarnOfEmpty(config);
  }
  // Classes with kTyped or kNested treat every key of the dict as a layer type.
  if ((rule == DictRule::kTyped || rule == DictRule::kNested) &&
      !model.family.kinds[0].type.empty() &&
      !model.family.layer_types.empty() && config.Has("rope_parameters")) {
    WarnOfStrangeTypes(model);
  }
  if (dicts->from_class) return;
  // Classes with kMerged or kTyped add the whole rope_scaling to their default
  // entries, and read no entries in it.
  const bool goes_into_entries = key == "rope_scaling" &&
                                 dicts->merged == nullptr &&
                                 model.family.merges_dicts();
  if (model.family.known() && dicts->nested &&
      (goes_into_entries || (!dicts->has_kinds && (rule == DictRule::kOne ||
                                                   rule == DictRule::kNone)))) {
    const std::string fact =
        absl::StrCat("has entries for types of layers, and ",
                     ClassOf(model.model_type), " reads no entries there");
    // transformers reads a dict with none of the file's types as a flat dict.
    const std::vector<std::string> types = LayerTypes(config);
    const bool has_type =
        types.empty() ||
        std::any_of(types.begin(), types.end(), [&](const std::string& type) {
          return dicts->dict.Contains(type);
        });
    if (ClassRow(model.model_type, ReadingRule::kFailsAtEntries) != nullptr &&
        has_type && !dicts->dict.Has("rope_type")) {
      config.Fail(key, fact, ": it fails");
      return;
    }
    config.Warn(key, " ", fact, ": the entries are not read");
    for (const std::string& type : dicts->dict.Keys()) {
      if (IsLayerType(model, type)) dicts->dict.MarkRead(type);
    }
    dicts->nested = false;
  }
  if (dicts->nested && !model.family.fills_in()) {
    WarnOfMissingTypes(model, class_dict, dicts->dict);
  }
  if (model.family.known()) WarnOfKeysBesideEntries(model, *dicts);
  if (!is_empty) ApplyRule(model, key, class_dict, dicts);
}

}  // namespace

RopeDicts ReadRopeDicts(const Model& model, const json& class_dict) {
  const auto& [config, model_type, family, rules, defaults] = model;
  const ReadingRow& spelling =
      SpellingRow(rules.profile, rules.version, model_type);
  const bool by_class = model.by_class();
  // If Step 3.5's class takes the entries, it does not read rope_scaling.
  const bool takes_entries =
      by_class && family.all_entries && family.merges_dicts() &&
      IsNested(model, class_dict, config.Peek().Object("rope_parameters"));
  const std::string key =
      takes_entries ? "rope_parameters" : GivenKey(config, spelling.rule);
  const bool from_class = key.empty() && class_dict.is_object() && by_class;
  RopeDicts dicts = {
      .dict = !key.empty() ? config.Object(key)
              : from_class
                  ? JsonObject(&class_dict, "rope_parameters", &config.report())
                  : JsonObject(nullptr, config.Path("rope_parameters"),
                               &config.report()),
      .from_class = from_class};
  if (by_class) MergeScaling(model, &dicts);
  if (dicts.merged != nullptr) {
    config.Warn("rope_scaling", " ", Shortened(config.At("rope_scaling")),
                " goes into the entries of rope_parameters that ",
                ClassOf(model_type),
                " scales; other readers take one of the two");
  } else {
    WarnOfUnread(model, key, spelling);
  }
  CheckNames(dicts.dict);
  dicts.nested = IsNested(model, class_dict, dicts.dict);
  // Dots 3 copies a flat dict for each layer type, so all layer types then have
  // the same encoding.
  dicts.has_kinds = !family.kinds[0].type.empty() &&
                    (family.dicts != DictRule::kOne || !by_class ||
                     key.empty() || dicts.nested);
  if (by_class) CheckByClass(model, key, class_dict, &dicts);
  return dicts;
}

}  // namespace posenc::core::interpretation
