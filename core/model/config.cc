#include "core/model/config.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/error.h"
#include "core/model/diffusion_config.h"
#include "core/model/families.h"
#include "core/model/json_object.h"
#include "core/model/native_config.h"
#include "core/model/profile.h"
#include "core/model/rope_config.h"
#include "core/model/scaling_config.h"
#include "core/model/tower_config.h"

// Two questions are asked of a configuration: which layers it distinguishes,
// and what one of them is rotated by. The first is answered here: types of
// layers come from nested rope_parameters, from the model's class (families.h),
// or not at all, and a layer is chosen by its type or its index. The second is
// answered by ReadRopeDict for the dict of that layer.
//
// Errors come in two ways. A value of the wrong type sets the status that all
// JsonObjects of a call share, and reading goes on as if the key were absent.
// What concerns the choice of a layer is returned. As an absent key may lead to
// an error about the choice, the shared status is reported first
// (ReadModelConfig).
namespace posenc::core {
namespace {

using nlohmann::json;

// The language model's part of a multimodal configuration, which may be nested
// more than once. model_type becomes the innermost one that is given.
JsonObject LanguagePart(JsonObject config, std::string* model_type) {
  for (bool found = true; found;) {
    *model_type = config.Text("model_type").value_or(*model_type);
    found = false;
    for (const absl::string_view key :
         {"text_config", "llm_config", "language_config", "thinker_config"}) {
      if (!config.Has(key)) continue;
      config = config.Object(key);
      found = true;
      break;
    }
  }
  return config;
}

class ConfigReader {
 public:
  ConfigReader(const JsonObject& config, const std::string& model_type,
               Profile profile, absl::Status* status)
      : config_(config),
        model_type_(ModelKey(model_type)),
        rules_(RulesOf(profile)),
        family_(FindFamily(model_type, &known_family_)),
        class_dict_(json::parse(family_.rope_parameters, nullptr, false)),
        from_class_(!config.Has("rope_scaling") &&
                    !config.Has("rope_parameters") && class_dict_.is_object() &&
                    (profile == Profile::kHf || profile == Profile::kVllm)),
        dict_(from_class_ ? JsonObject(&class_dict_, "rope_parameters", status)
              : config.Has("rope_scaling") ? config.Object("rope_scaling")
                                           : config.Object("rope_parameters")),
        nested_(IsNested()) {}

  absl::StatusOr<ModelRope> Read(
      const std::optional<std::string>& layer_type,
      const std::optional<std::int32_t>& layer_index) {
    ModelRope rope;
    auto nope = ReadNope(layer_type, layer_index);
    if (!nope.ok()) return nope.status();
    auto type = ChooseType(layer_type, layer_index);
    if (!type.ok()) return type.status();
    rope.head_dim = HeadDim(config_, family_, *type);
    ReadQueryTemperature(*nope, &rope);
    WarnOfModel(&rope);
    if (*nope || (nested_ && dict_.HasNull(*type))) {
      rope.spec = RopeSpec{.nope = true};
    } else {
      if (!known_family_) AssumeFamily(&rope);
      RopeDict from = DictOf(*type);
      from.head_dim = rope.head_dim;
      if (from_class_) {
        rope.assumptions.push_back({"rope_parameters",
                                    std::string(family_.rope_parameters),
                                    DefaultOf(rules_)});
      }
      from.layer_theta = LayerTheta(layer_index);
      WarnOfBothSpellings(&rope);
      ReadRopeDict(from, &rope);
      // Keys of the other kind of layers are known, too: they must not be
      // reported as not read.
      for (const LayerKind& kind : family_.kinds) {
        config_.MarkRead(kind.theta_key);
      }
      for (const std::string& key : config_.Keys()) {
        if ((absl::StartsWith(key, "rope_") ||
             absl::StartsWith(key, "rotary_")) &&
            !config_.WasRead(key)) {
          rope.warnings.push_back(
              absl::StrCat(config_.Path(key), " is not read"));
        }
      }
    }
    return rope;
  }

 private:
  // True if the dict holds dicts, one for each type of layer (null for a type
  // without rope).
  bool IsNested() const {
    for (const std::string& key : dict_.Keys()) {
      if (dict_.Find(key)->is_object()) return true;
    }
    return false;
  }

  RopeDict DictOf(const std::string& type) const {
    return {.config = config_,
            .dict = nested_ ? dict_.Object(type) : dict_,
            .family = family_,
            .rules = rules_,
            .model_type = model_type_,
            .kind = FindKind(type),
            .nested = nested_,
            .from_class = from_class_};
  }

  // A reference implementation runs its own models only. For other models the
  // answer is what its rules would give.
  void WarnOfModel(ModelRope* rope) const {
    if (absl::StartsWith(model_type_, rules_.model_prefix)) return;
    rope->warnings.push_back(absl::StrCat(
        "model_type ", model_type_.empty() ? "(absent)" : model_type_,
        " is not a model of ", rules_.project,
        "; its rules are applied to it all the same"));
  }

  // If both spellings are given, rope_scaling replaces rope_parameters as a
  // whole.
  void WarnOfBothSpellings(ModelRope* rope) const {
    if (!config_.Has("rope_scaling") || !config_.Has("rope_parameters")) return;
    const auto bare = [this](absl::string_view key) {
      json dict = *config_.Find(key);
      if (!dict.is_object()) return dict;
      if (dict.contains("type") && !dict.contains("rope_type")) {
        dict["rope_type"] = dict["type"];
      }
      dict.erase("type");
      dict.erase("rope_theta");
      return dict;
    };
    const bool same = bare("rope_scaling") == bare("rope_parameters");
    rope->warnings.push_back(absl::StrCat(
        config_.Path("rope_parameters"),
        " is not read: rope_scaling, which is given too, replaces it",
        same ? "" : "; they differ"));
  }

  void AssumeFamily(ModelRope* rope) const {
    rope->assumptions.push_back(
        {"pairing",
         family_.pairing == Pairing::kInterleaved ? "interleaved"
                                                  : "half-split",
         absl::StrCat(model_type_.empty()
                          ? "model_type is absent"
                          : absl::StrCat("model_type ", model_type_,
                                         " is not known here"),
                      "; read as Llama's class")});
  }

  // Layer types that have parameters of their own; empty if all share one set.
  std::vector<std::string> Types() const {
    if (nested_) return dict_.Keys();
    if (!family_.kinds[0].type.empty()) {
      return {std::string(family_.kinds[0].type),
              std::string(family_.kinds[1].type)};
    }
    return {};
  }

  const LayerKind* FindKind(absl::string_view type) const {
    for (const LayerKind& kind : family_.kinds) {
      if (!type.empty() && kind.type == type) return &kind;
    }
    return nullptr;
  }

  // Those of `types` that the model has layers of; all if it does not list its
  // layers.
  std::vector<std::string> UsedTypes(const std::vector<std::string>& types) {
    const std::vector<std::string> of_layers = LayerTypes();
    std::vector<std::string> used;
    for (const std::string& type : types) {
      if (std::count(of_layers.begin(), of_layers.end(), type) > 0) {
        used.push_back(type);
      }
    }
    return used.empty() ? types : used;
  }

  // True if layers of these types rotate differently, so that one must be
  // chosen.
  bool Differ(const std::vector<std::string>& types) const {
    if (types.size() < 2) return false;
    if (config_.Has("global_head_dim") || family_.global_head_dim > 0) {
      return true;
    }
    for (const std::string& type : types) {
      if (nested_) {
        if (*dict_.Find(type) != *dict_.Find(types[0])) return true;
      } else if (FindKind(type)->scaled != FindKind(types[0])->scaled &&
                 RopeType(DictOf(type)) != "default") {
        return true;
      } else {
        ModelRope ignored;
        if (ReadTheta(DictOf(type), &ignored) !=
            ReadTheta(DictOf(types[0]), &ignored)) {
          return true;
        }
      }
    }
    return false;
  }

  std::vector<std::string> LayerTypes() const {
    std::vector<std::string> types;
    const json* list = config_.Find("layer_types");
    if (list == nullptr || list->is_null()) return types;
    if (!list->is_array()) {
      config_.Fail("layer_types", "must be an array of strings");
      return types;
    }
    for (const json& type : *list) {
      if (!type.is_string()) {
        config_.Fail("layer_types", "must be an array of strings");
        return types;
      }
      types.push_back(type.get<std::string>());
    }
    return types;
  }

  absl::Status CheckIndex(std::int32_t index) const {
    std::optional<std::int64_t> layers = config_.FirstInteger(
        {"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
    if (!layers && !LayerTypes().empty()) {
      layers = static_cast<std::int64_t>(LayerTypes().size());
    }
    if (index < 0 || (layers && index >= *layers)) {
      return FieldInvalid(
          "layer_index",
          absl::StrCat(index, layers ? absl::StrCat("; the model has ", *layers,
                                                    " layers, from 0")
                                     : "; layers count from 0"));
    }
    return absl::OkStatus();
  }

  // The type of a layer; empty if the configuration does not say. Projects mark
  // it in four ways: a list of types, a list of numbers, a pattern of letters,
  // and "every n-th".
  std::string TypeOfLayer(std::int64_t index) const {
    const std::vector<std::string> types = LayerTypes();
    if (index < static_cast<std::int64_t>(types.size())) return types[index];
    const std::string full = family_.kinds[0].type.empty()
                                 ? "full_attention"
                                 : std::string(family_.kinds[0].type);
    const std::string other = family_.kinds[1].type.empty()
                                  ? "sliding_attention"
                                  : std::string(family_.kinds[1].type);
    // MiMo marks sliding layers with 1, DeepSeek V4 compressed ones with their
    // ratio.
    for (const absl::string_view key :
         {"hybrid_layer_pattern", "compress_ratios"}) {
      const std::vector<double> marks = config_.Numbers(key);
      if (index < static_cast<std::int64_t>(marks.size())) {
        return marks[index] == 0 ? full : other;
      }
    }
    std::int64_t every = family_.full_every;
    for (const absl::string_view key :
         {"sliding_window_pattern", "_sliding_window_pattern",
          "global_attn_every_n_layers"}) {
      const json* value = config_.Find(key);
      if (value == nullptr || value->is_null()) continue;
      if (value->is_string()) {  // EXAONE: "LLLG"
        const std::string pattern = value->get<std::string>();
        if (pattern.empty()) return "";
        return pattern[index % pattern.size()] == 'G' ? full : other;
      }
      every = config_.Integer(key).value_or(0);
    }
    if (every < 1) return "";
    const bool is_full =
        family_.full_first ? index % every == 0 : (index + 1) % every == 0;
    return is_full ? full : other;
  }

  // The type of layer whose parameters are wanted; empty if all layers share
  // them. At most one of layer_type and layer_index is given.
  absl::StatusOr<std::string> ChooseType(
      const std::optional<std::string>& layer_type,
      const std::optional<std::int32_t>& layer_index) {
    const std::vector<std::string> types = Types();
    if (layer_index) {
      const absl::Status valid = CheckIndex(*layer_index);
      if (!valid.ok()) return valid;
      if (types.empty()) return "";
      const std::string type = TypeOfLayer(*layer_index);
      if (std::count(types.begin(), types.end(), type) > 0) return type;
      if (!type.empty()) {
        return FieldInvalid(
            "layer_index",
            absl::StrCat("layer ", *layer_index, " is of type ", type,
                         ", for which the configuration has no rope; it has ",
                         absl::StrJoin(types, ", ")));
      }
      return FieldInvalid(
          "layer_index",
          absl::StrCat("the configuration does not tell the type of layer ",
                       *layer_index,
                       "; choose layer_type: ", absl::StrJoin(types, ", ")));
    }
    if (layer_type) {
      std::vector<std::string> accepted = types;
      if (types.empty()) {
        accepted = {"full_attention", "sliding_attention"};
        for (const std::string& type : LayerTypes()) accepted.push_back(type);
        if (family_.nope == NopeRule::kLayerList) {
          accepted.push_back("chunked_attention");
        }
        std::sort(accepted.begin(), accepted.end());
        accepted.erase(std::unique(accepted.begin(), accepted.end()),
                       accepted.end());
      }
      if (std::count(accepted.begin(), accepted.end(), *layer_type) == 0) {
        return FieldInvalid(
            "layer_type",
            absl::StrCat("\"", *layer_type, "\" is not of this model; it has ",
                         absl::StrJoin(accepted, ", ")));
      }
      return types.empty() ? "" : *layer_type;
    }
    const std::vector<std::string> used = UsedTypes(types);
    if (Differ(used)) {
      return FieldRequired(
          "layer_type",
          absl::StrCat("the model's layers differ: ", absl::StrJoin(used, ", "),
                       "; choose one, or a layer_index"));
    }
    return used.empty() ? "" : used[0];
  }

  // True if the chosen layer has no rope. Classes mark such layers in many
  // ways, which are tried from the plainest to the most particular.
  absl::StatusOr<bool> ReadNope(
      const std::optional<std::string>& layer_type,
      const std::optional<std::int32_t>& layer_index) {
    if (config_.Has("position_embedding_type") &&
        *config_.Find("position_embedding_type") == "nope") {
      return true;
    }
    if (family_.nope == NopeRule::kEveryLayer) return true;
    if (!family_.rope_switch.empty() && config_.Has(family_.rope_switch) &&
        config_.Find(family_.rope_switch)->dump() !=
            family_.rope_switch_value) {
      return true;
    }
    const std::vector<double> thetas = config_.Numbers("layer_rope_theta");
    if (!thetas.empty()) {
      if (std::count(thetas.begin(), thetas.end(), thetas[0]) ==
          static_cast<std::ptrdiff_t>(thetas.size())) {
        return thetas[0] == 0;
      }
      if (!layer_index) {
        return FieldRequired("layer_index",
                             "the model's layers differ by their base "
                             "(layer_rope_theta); choose one by its index");
      }
      const absl::Status valid = CheckIndex(*layer_index);
      if (!valid.ok()) return valid;
      return LayerTheta(layer_index) == 0.0;
    }
    if (family_.nope == NopeRule::kNone) return false;
    if (layer_index) {
      const absl::Status valid = CheckIndex(*layer_index);
      if (!valid.ok()) return valid;
    }
    if (family_.nope == NopeRule::kFullAttention ||
        family_.nope == NopeRule::kSlidingOnly) {
      // In transformers' classes the window is 4096 unless the configuration
      // says null.
      if (family_.nope == NopeRule::kFullAttention &&
          config_.HasNull("sliding_window")) {
        return false;
      }
      if (layer_type) return *layer_type == "full_attention";
      if (layer_index) return TypeOfLayer(*layer_index) == "full_attention";
      return FieldRequired(
          "layer_type",
          "the model's layers differ: full_attention has no rope, "
          "sliding_attention has; choose one, or a layer_index");
    }
    if (family_.nope == NopeRule::kFromLast) {
      const auto layers = config_.Integer("num_hidden_layers");
      if (!layers || !layer_index) {
        return FieldRequired("layer_index",
                             "the last layer of the model and every fourth "
                             "before it have no rope; choose one by its index "
                             "(the configuration must have num_hidden_layers)");
      }
      return (*layers - 1 - *layer_index) % family_.full_every == 0;
    }
    const std::vector<double> has_rope = config_.Numbers("no_rope_layers");
    if (!has_rope.empty() &&
        std::count(has_rope.begin(), has_rope.end(), 0) == 0) {
      return false;
    }
    if (layer_type && *layer_type == "chunked_attention") return false;
    if (layer_type && model_type_.rfind("llama4", 0) == 0 &&
        *layer_type == "full_attention") {
      return true;
    }
    if (!layer_index) {
      return FieldRequired("layer_index",
                           "some of the model's layers have no rope "
                           "(no_rope_layers); choose one by its index");
    }
    if (!has_rope.empty()) {
      if (*layer_index >= static_cast<std::int64_t>(has_rope.size())) {
        return FieldInvalid("layer_index",
                            absl::StrCat(*layer_index, "; no_rope_layers has ",
                                         has_rope.size(), " layers"));
      }
      return has_rope[*layer_index] == 0;
    }
    const std::int64_t every =
        config_.Integer("no_rope_layer_interval").value_or(family_.full_every);
    return every > 0 && (*layer_index + 1) % every == 0;
  }

  // Llama 4 scales the queries of its layers without rope, by their position.
  void ReadQueryTemperature(bool nope, ModelRope* rope) const {
    if (!nope || model_type_.rfind("llama4", 0) != 0) return;
    const json* tuning = config_.Find("attn_temperature_tuning");
    // Configurations are published with true, or with the number 4; the class's
    // default is true.
    if (tuning != nullptr && (tuning->is_null() || *tuning == false ||
                              (tuning->is_number() && *tuning == 0))) {
      return;
    }
    rope->query_scale =
        QueryScale{config_.Number("attn_scale").value_or(0.1),
                   config_.Number("floor_scale").value_or(8192), 1};
  }

  std::optional<double> LayerTheta(
      const std::optional<std::int32_t>& layer_index) const {
    const std::vector<double> thetas = config_.Numbers("layer_rope_theta");
    if (thetas.empty()) return std::nullopt;
    const std::size_t index = layer_index.value_or(0);
    return index < thetas.size() ? thetas[index] : thetas[0];
  }

  const JsonObject config_;
  const std::string model_type_;
  const ProfileRules& rules_;
  bool known_family_;
  const Family& family_;
  const json class_dict_;
  const bool from_class_;
  const JsonObject dict_;
  const bool nested_;
};

// Whether somebody sent the name of a file in place of what it holds.
bool LooksLikePath(absl::string_view text) {
  return text.find_first_of("{\n") == absl::string_view::npos &&
         (text.find_first_of("/\\") != absl::string_view::npos ||
          absl::EndsWith(text, ".json"));
}

}  // namespace

absl::StatusOr<ModelRope> ReadModelConfig(
    absl::string_view config_json, Profile profile,
    const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index, ModelPart part) {
  absl::Status status = CheckJsonSize(config_json);
  if (!status.ok()) return status;
  const json root = ParseConfig(config_json);
  if (!root.is_object()) {
    return ConfigError("",
                       !root.is_discarded()
                           ? absl::StrCat("is JSON of type ", root.type_name(),
                                          "; it must be an object")
                       : LooksLikePath(config_json)
                           ? "is not JSON: a path? send the file's text"
                           : "is not JSON");
  }
  std::string model_type;
  const JsonObject whole(&root, "", &status);
  JsonObject config = whole;
  if (IsDiffusionConfig(whole)) {
    absl::StatusOr<ModelRope> rope = ReadDiffusion(whole, part, profile);
    if (rope.ok() && (layer_type || layer_index)) {
      return FieldInvalid(
          layer_type ? "layer_type" : "layer_index",
          "a diffusion transformer's layers do not differ; leave it unset");
    }
    if (!status.ok()) return status;
    return rope;
  }
  if (part == ModelPart::kVision || part == ModelPart::kAudio ||
      IsTowerConfig(whole)) {
    const absl::StatusOr<TowerPart> tower = FindTowerPart(whole, part);
    if (!status.ok()) return status;
    if (!tower.ok()) return tower.status();
    if (tower->tower != nullptr) {
      if (layer_type || layer_index) {
        return FieldInvalid(layer_type ? "layer_type" : "layer_index",
                            "a tower's layers do not differ; leave it unset");
      }
      ModelRope rope = ReadTower(*tower, profile);
      if (!status.ok()) return status;
      return rope;
    }
    config = tower->config;
    model_type = tower->model_type;
  } else {
    config = LanguagePart(whole, &model_type);
  }
  json respelled;
  if (IsGptOssConfig(config)) {
    respelled = GptOssAsTransformers(config);
    config = LanguagePart(JsonObject(&respelled, "", &status), &model_type);
  } else if (IsStepConfig(config)) {
    respelled = StepAsTransformers(config);
    config = JsonObject(&respelled, "", &status);
  }
  absl::StatusOr<ModelRope> rope;
  if (IsMistralParams(config)) {
    rope = ReadMistralParams(config, profile, layer_type, layer_index);
  } else {
    ConfigReader reader(config, model_type, profile, &status);
    if (!status.ok()) return status;
    rope = reader.Read(layer_type, layer_index);
  }
  // A value of the wrong type explains what failed after it.
  if (!status.ok()) return status;
  return rope;
}

}  // namespace posenc::core
