#include "core/interpretation/language_config.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/error.h"
#include "core/interpretation/class_defaults.h"
#include "core/interpretation/families.h"
#include "core/interpretation/known_keys.h"
#include "core/interpretation/layers.h"
#include "core/interpretation/profile.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/rope_config.h"
#include "core/interpretation/rope_dicts.h"
#include "core/interpretation/scaling_config.h"

// Two questions are asked of a configuration: which layers it distinguishes,
// and what one of them is rotated by. The first is answered here: types of
// layers come from nested rope_parameters, from the model's class (families.h),
// or not at all, and a layer is chosen by its type or its index. The second is
// answered by ReadRopeDict for the dict of that layer.
//
// Errors come in two ways. A value of the wrong type sets the status that all
// JsonObjects of a call share, and reading goes on as if the key were absent.
// Errors about the choice of a layer are returned. ReadLanguageModel() reports
// the shared status first, because an absent key may cause an error about the
// choice.
namespace posenc::core::interpretation {
namespace {

using nlohmann::json;

// The family of a configuration; of a type that is not known, what its keys
// say: a slice of each head that rotates is latent attention's.
const Family& FamilyOf(const JsonObject& config, const std::string& model_type,
                       bool* known) {
  const Family& family = FindFamily(model_type, known);
  const json* slice = config.Find("qk_rope_head_dim");
  return *known || slice == nullptr || !slice->is_number() || *slice <= 0
             ? family
             : UnknownLatentFamily();
}

// The same for a reader that may have one rope for all layers.
Family FamilyFor(const JsonObject& config, const std::string& model_type,
                 const ProfileRules& rules, bool* known) {
  Family family = FamilyOf(config, model_type, known);
  if (FindReadingRow(rules, ModelKey(model_type), ReadingRule::kOneRope) !=
      nullptr) {
    family.dicts = DictRule::kOne;
    for (LayerKind& kind : family.kinds) kind = {};
  }
  return family;
}

// An error of layers that nobody asked about, which says whose it is, unless
// its key does.
absl::Status OfLayers(const std::string& type, const absl::Status& error) {
  const auto details = GetErrorDetails(error);
  absl::string_view fact = error.message();
  absl::ConsumePrefix(&fact, "config_json: ");
  if (!details || absl::StrContains(fact, type)) return error;
  return MakeError(error.code(), details->reason, details->field,
                   absl::StrCat("layers of type ", type, ": ", fact),
                   details->metadata);
}

class ConfigReader {
 public:
  ConfigReader(const JsonObject& config, const std::string& model_type,
               const ProfileVersion& reader, absl::Status* status)
      : config_(config),
        model_type_(ModelKey(model_type)),
        rules_(RulesFor(reader)),
        family_(FamilyFor(config, model_type, rules_, &known_family_)),
        class_dict_(json::parse(family_.rope_parameters, nullptr, false)),
        dicts_(ReadRopeDicts(layers(), rules_, class_dict_, status)),
        status_(status) {}

  absl::StatusOr<ModelRope> Read(
      const std::optional<std::string>& layer_type,
      const std::optional<std::int32_t>& layer_index) {
    ModelRope rope;
    CheckKnownKeys(config_);
    if (!known_family_) {
      const absl::Status status = CheckUnknown(&rope);
      if (!status.ok()) return status;
    }
    if (rules_.profile == Profile::kHf) {
      const ClassDefaults* defaults = FindClassDefaults(model_type_);
      WarnOfRefusals(layers(), defaults, &rope.warnings);
    }
    auto nope = IsNope(layer_type, layer_index, &rope);
    if (!nope.ok()) return nope.status();
    auto type = ChooseType(layer_type, layer_index);
    if (!type.ok()) return type.status();
    auto unscaled = IsUnscaledLayer(config_, layer_index);
    if (!unscaled.ok()) return unscaled.status();
    rope.head_dim = HeadDim(config_, family_, *type);
    ReadQueryTemperature(*nope, &rope);
    WarnOfModel(&rope);
    if (!family_.learned.empty()) {
      Assume("frequencies", "those of the configuration",
             std::string(family_.learned), &rope);
    }
    rope.warnings.insert(rope.warnings.end(), dicts_.warnings.begin(),
                         dicts_.warnings.end());
    if (*nope || (dicts_.nested && !FillsIn() && dicts_.dict.HasNull(*type))) {
      rope.spec = RopeSpec{.nope = true};
    } else {
      if (!known_family_) AssumeFamily(&rope);
      RopeDict from = DictOf(*type);
      from.head_dim = rope.head_dim;
      if (dicts_.from_class) {
        rope.assumptions.push_back({"rope_parameters",
                                    std::string(family_.rope_parameters),
                                    DefaultOf(rules_)});
      }
      from.is_unscaled_layer = *unscaled;
      from.layer_theta = LayerTheta(config_, layer_index);
      ReadRopeDict(from, &rope);
      if (rules_.profile == Profile::kHf) {
        WarnOfRange(from, rope.spec, &rope.warnings);
      }
      const absl::Status others = CheckOtherTypes(*type, &rope);
      if (!others.ok()) return others;
      // Keys of the other kind of layers are known, too: they must not be
      // reported as not read.
      for (const LayerKind& kind : family_.kinds) {
        config_.MarkRead(kind.theta_key);
      }
      // Known, without a meaning for rotation.
      for (const absl::string_view key : {"rotary_value", "rope_interleave"}) {
        config_.MarkRead(key);
      }
      WarnOfShare(&rope);
      for (const std::string& key : config_.Keys()) {
        const json& value = *config_.Find(key);
        if (value.is_null()) continue;
        if ((absl::StartsWith(key, "rope_") ||
             absl::StartsWith(key, "rotary_")) &&
            !config_.WasRead(key) && !SaysTheSame(key, rope)) {
          rope.warnings.push_back(NotRead(key, rope));
        }
      }
    }
    return rope;
  }

 private:
  RopeDict DictOf(const std::string& type) const {
    return {.config = config_,
            .dict = dicts_.nested ? dicts_.dict.Object(type) : dicts_.dict,
            .family = family_,
            .rules = rules_,
            .model_type = model_type_,
            .kind = FindKind(type),
            .nested = dicts_.nested,
            .scales = dicts_.scales,
            .from_class = dicts_.from_class,
            .defaults = ReadsByClass(rules_) ? FindClassDefaults(model_type_)
                                             : nullptr};
  }

  // True if the chosen layer has no rope. A switch that is absent is said where
  // it turns rope off.
  absl::StatusOr<bool> IsNope(const std::optional<std::string>& layer_type,
                              const std::optional<std::int32_t>& layer_index,
                              ModelRope* rope) const {
    const bool has_switch =
        FindReadingRow(rules_, model_type_, ReadingRule::kNoSwitch) == nullptr;
    if (!has_switch || !IsSwitchedOff(layers())) {
      return IsNopeLayer(layers(), layer_type, layer_index);
    }
    if (config_.Find(family_.rope_switch) == nullptr) {
      Assume(config_.Path(family_.rope_switch), SwitchValue(layers()),
             absl::StrCat("absent; default of the class of model_type ",
                          model_type_, ", with which nothing rotates"),
             rope);
    }
    return true;
  }

  // True if an older name of a key has the value that is used.
  bool SaysTheSame(const std::string& key, const ModelRope& rope) const {
    const json& value = *config_.Find(key);
    if (key == "rope_interleaved" || key == "rotary_emb_interleaved") {
      return value == (rope.spec.pairing == Pairing::kInterleaved);
    }
    if (!value.is_number()) return false;
    const auto number = value.get<double>();
    if (key == "rotary_emb_base") return number == rope.spec.rope_theta;
    return IsAmong(key, "rotary_pct rope_percent rotary_emb_fraction") &&
           static_cast<std::int64_t>(number *
                                     static_cast<double>(rope.head_dim)) ==
               rope.spec.rotary_dim;
  }

  // Of a key that says how to rotate, beside what is done.
  std::string NotRead(const std::string& key, const ModelRope& rope) const {
    std::string text = absl::StrCat(
        config_.Path(key), " ", Shortened(*config_.Find(key)), " is not read");
    if (rope.spec.rope_theta && IsBaseName(key)) {
      absl::StrAppend(&text, ": ", rules_.project, " takes the base ",
                      NumberText(*rope.spec.rope_theta));
      if (!model_type_.empty()) {
        absl::StrAppend(&text, " for model_type ", model_type_);
      }
    }
    return text;
  }

  // A share beside dicts that have their own, and say otherwise.
  void WarnOfShare(ModelRope* rope) const {
    constexpr absl::string_view kKey = "partial_rotary_factor";
    if (config_.WasRead(kKey)) return;
    const auto share = config_.PeekNumber(kKey);
    if (!share) return;
    const auto channels =
        static_cast<std::int64_t>(*share * static_cast<double>(rope->head_dim));
    if (channels == rope->spec.rotary_dim) return;
    Warn(&rope->warnings, config_, kKey, " is not read: it gives ", channels,
         " of the ", rope->head_dim, " channels, and ", rules_.project,
         " rotates ", rope->spec.rotary_dim);
  }

  // A class builds the frequencies of every type, so what is wrong with one of
  // them is wrong with the file.
  absl::Status CheckOtherTypes(const std::string& chosen,
                               ModelRope* rope) const {
    // What failed before explains what would fail here.
    if (!ReadsByClass(rules_) || !status_->ok()) return absl::OkStatus();
    for (const std::string& type : Types()) {
      if (type == chosen ||
          (dicts_.nested && !FillsIn() && dicts_.dict.HasNull(type))) {
        continue;
      }
      RopeDict from = DictOf(type);
      ModelRope ignored;
      from.head_dim = HeadDim(config_, family_, type);
      ReadRopeDict(from, &ignored);
      if (!status_->ok()) {
        *status_ = OfLayers(type, *status_);
        return absl::OkStatus();
      }
      if (rules_.profile == Profile::kHf && rope->warnings.empty()) {
        WarnOfRange(from, ignored.spec, &rope->warnings);
      }
      if (dicts_.nested && rules_.profile == Profile::kHf) {
        WarnOfNulls(from.dict, &rope->warnings);
        if (family_.dicts == DictRule::kNested && !dicts_.from_class) {
          WarnOfNoBase(from.dict, &rope->warnings);
        }
      }
      const auto resolved =
          ResolveSpec(ignored.spec, from.head_dim, std::nullopt,
                      MissingLength::kAssumeOriginal);
      if (!resolved.ok()) {
        return OfLayers(type, ConfigError("", resolved.status().message()));
      }
    }
    return absl::OkStatus();
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

  // A type that is not known is read as Llama's class, if anything in the file
  // says that it rotates.
  absl::Status CheckUnknown(ModelRope* rope) const {
    const bool by_hf = rules_.profile == Profile::kHf;
    if (model_type_.empty()) {
      if (by_hf) {
        rope->warnings.push_back(
            "model_type is absent; transformers refuses such a file, and it is "
            "read here as Llama's class");
      }
      return absl::OkStatus();
    }
    if (HasRotaryKey(config_)) {
      if (by_hf) {
        rope->warnings.push_back(absl::StrCat(
            "model_type ", model_type_,
            " is not known here: transformers refuses types that "
            "it does not know; read as ",
            family_.width == RotaryWidth::kMla ? "DeepSeek V3's" : "Llama's",
            " class"));
      }
      return absl::OkStatus();
    }
    return ConfigError(
        "model_type",
        absl::StrCat("is \"", model_type_,
                     "\", which is not known here, and the file has no rotary "
                     "key (rope_parameters, rope_scaling, rope_theta, ...): "
                     "nothing says that the model rotates; add rope_theta if "
                     "it does"));
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
                      family_.width == RotaryWidth::kMla
                          ? "; read as DeepSeek V3's class, by "
                            "qk_rope_head_dim"
                          : "; read as Llama's class")});
  }

  // True if the class has parameters for a type that the dict does not.
  bool FillsIn() const {
    return ReadsByClass(rules_) && (family_.dicts == DictRule::kMerged ||
                                    family_.dicts == DictRule::kTyped);
  }

  // Layer types that have parameters of their own; empty if all share one set.
  std::vector<std::string> Types() const {
    if (dicts_.nested && !FillsIn()) {
      std::vector<std::string> types;
      for (const std::string& key : dicts_.dict.Keys()) {
        if (IsLayerType(layers(), key)) types.push_back(key);
      }
      return types;
    }
    if (dicts_.has_kinds) {
      return {std::string(family_.kinds[0].type),
              std::string(family_.kinds[1].type)};
    }
    return {};
  }

  const LayerKind* FindKind(absl::string_view type) const {
    if (!dicts_.has_kinds) return nullptr;
    for (const LayerKind& kind : family_.kinds) {
      if (!type.empty() && kind.type == type) return &kind;
    }
    return nullptr;
  }

  // Those of `types` that the model has layers of; all if it does not list its
  // layers.
  std::vector<std::string> UsedTypes(const std::vector<std::string>& types) {
    const std::vector<std::string> of_layers = LayerTypes(config_);
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
      if (dicts_.nested && !FillsIn()) {
        if (*dicts_.dict.Find(type) != *dicts_.dict.Find(types[0])) return true;
      } else if (FindKind(type)->partial != FindKind(types[0])->partial) {
        return true;
      } else if (dicts_.nested && dicts_.dict.Find(type) != nullptr &&
                 RopeType(DictOf(type)) != "default") {
        return true;
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

  // The type of layer whose parameters are wanted; empty if all layers share
  // them. At most one of layer_type and layer_index is given.
  absl::StatusOr<std::string> ChooseType(
      const std::optional<std::string>& layer_type,
      const std::optional<std::int32_t>& layer_index) {
    const std::vector<std::string> types = Types();
    if (layer_index) {
      const absl::Status valid = CheckLayerIndex(config_, *layer_index);
      if (!valid.ok()) return valid;
      if (types.empty()) return "";
      const std::string type = TypeOfLayer(layers(), *layer_index);
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
        for (const std::string& type : LayerTypes(config_))
          accepted.push_back(type);
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

  ModelLayers layers() const { return {config_, model_type_, family_}; }

  const JsonObject config_;
  const std::string model_type_;
  const ProfileRules rules_;
  bool known_family_;
  const Family family_;
  const json class_dict_;
  const RopeDicts dicts_;
  absl::Status* const status_;
};

}  // namespace

absl::StatusOr<ModelRope> ReadLanguageModel(
    const JsonObject& config, const std::string& model_type,
    const ProfileVersion& reader, const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index, absl::Status* status) {
  ConfigReader text(config, model_type, reader, status);
  if (!status->ok()) return *status;
  absl::StatusOr<ModelRope> rope = text.Read(layer_type, layer_index);
  // A value of the wrong type explains what failed after it.
  if (!status->ok()) return *status;
  return rope;
}

}  // namespace posenc::core::interpretation
