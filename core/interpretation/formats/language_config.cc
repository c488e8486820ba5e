#include "core/interpretation/formats/language_config.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/known_keys.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/rope/rope_config.h"

// Reading has two steps. The first step is in this file. This step finds the
// layer types in nested rope_parameters or in the model's class (families.h),
// and chooses a layer by its type or index. The second step, ReadRopeDict,
// reads the dict of that layer.
//
// All errors go to the report that all JsonObjects of a call share. The report
// keeps the first error.
namespace posenc::core::interpretation {
namespace {

// Returns the family of a configuration. An unknown type with the key
// qk_rope_head_dim is read as latent attention. For a reader with one rope or
// one scaling for all layers (kOneRope, kScalesAll), removes the differences
// between layers.
Family FamilyFor(const JsonObject& config, const std::string& model_type,
                 const ProfileRules& rules) {
  Family family = FindFamily(model_type);
  const json& slice = config.At("qk_rope_head_dim");
  if (!family.known() && slice.is_number() && slice > 0) {
    family = UnknownLatentFamily();
  }
  const auto has = [&](ReadingRule rule) {
    return FindReadingRow(rules.profile, rules.version, ModelKey(model_type),
                          rule) != nullptr;
  };
  if (rules.vllm_modules && has(ReadingRule::kPermutesRows)) {
    family.indexer = Pairing::kInterleaved;
  }
  if (rules.vllm_modules && has(ReadingRule::kParametersUnread)) {
    family.rope_parameters = "";
  }
  if (has(ReadingRule::kOneRope)) {
    family.dicts = DictRule::kOne;
    for (LayerKind& kind : family.kinds) kind = {};
  }
  if (has(ReadingRule::kScalesAll)) {
    for (LayerKind& kind : family.kinds) kind.scaled = true;
  }
  return family;
}

// Returns `error`, which is about layers that the caller did not choose, with
// the layers' type in its message.
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
               const ProfileVersion& reader)
      : config_(config),
        given_type_(model_type),
        model_type_(ModelKey(model_type)),
        rules_(RulesFor(reader, model_type_)),
        family_(FamilyFor(config, model_type, rules_)),
        defaults_(FindClassDefaults(model_type_)),
        class_dict_(json::parse(family_.rope_parameters, nullptr, false)),
        dicts_(ReadRopeDicts(model(), class_dict_)) {}

  ModelRope Read(Question question) {
    if (question.part != ModelPart::kIndexer) return ReadAttention(question);
    // The class may have an indexer only in layers of one kind.
    if (!family_.indexer_type.empty()) {
      question.layer_type = std::string(family_.indexer_type);
      question.layer_index.reset();
    }
    ModelRope rope = ReadAttention(question);
    if (ok()) MakeIndexer(&rope);
    return rope;
  }

 private:
  ModelRope ReadAttention(const Question& question) {
    ModelRope rope;
    if (is_hf() && question.reader.profile != Profile::kHf) {
      report().Assume(
          "profile", "hf",
          absl::StrCat(RulesOf(question.reader.profile).project,
                       " runs transformers' code for ", model_type_));
    }
    CheckKnownKeys(config_);
    CheckRefusals(config_, model_type_, "", is_hf());
    if (!family_.known()) CheckUnknown();
    if (model().by_class()) WarnOfLists(model());
    if (is_hf()) {
      WarnOfRefusals(model());
    } else {
      WarnOfLayerEntries(model());
    }
    const bool nope = IsNope(question);
    if (!ok()) return rope;
    const std::string type = ChooseType(question);
    if (!ok()) return rope;
    const bool is_unscaled = IsUnscaledLayer(model(), question.layer_index);
    const Value head = HeadDim(model(), type);
    rope.head_dim = WholePart(head.value);
    ReadQueryTemperature(nope, &rope);
    // The rules of a reference implementation still apply to models that it
    // does not run.
    if (!absl::StartsWith(model_type_, rules_.model_prefix)) {
      report().Warn("model_type ",
                    model_type_.empty() ? "(absent)" : model_type_,
                    " is not a model of ", rules_.project,
                    "; its rules are applied anyway");
    }
    if (!family_.learned.empty()) {
      report().Assume("frequencies", "those of the configuration",
                      std::string(family_.learned));
    }
    if (nope || HasNullEntry(type) || HasNoSelfAttention(model(), question)) {
      rope.spec = RopeSpec{.nope = true};
      return rope;
    }
    if (!family_.known()) AssumeFamily();
    if (dicts_.from_class) {
      report().Assume("rope_parameters", std::string(family_.rope_parameters),
                      DefaultOf(rules_));
    }
    RopeDict from = DictOf(type);
    from.head = head;
    from.is_unscaled_layer = is_unscaled;
    from.layer_theta = LayerTheta(config_, question.layer_index);
    ReadRopeDict(from, &rope);
    WarnOfType(from);
    if (is_hf()) WarnOfRange(from, rope.spec);
    CheckOtherTypes(type);
    WarnOfUnreadKeys(rope);
    return rope;
  }

  Report& report() const { return config_.report(); }
  bool ok() const { return report().ok(); }
  bool is_hf() const { return rules_.profile == Profile::kHf; }
  Model model() const {
    return {config_, model_type_, family_, rules_, defaults_};
  }

  RopeDict DictOf(const std::string& type) const {
    RopeDict from = {model(),
                     dicts_.nested ? dicts_.dict.Object(type) : dicts_.dict,
                     FindKind(type)};
    from.nested = dicts_.nested;
    from.scales = dicts_.scales;
    from.from_class = dicts_.from_class;
    return from;
  }

  // True if the layer type's entry in the dict is null.
  bool HasNullEntry(const std::string& type) const {
    return dicts_.nested && !FillsIn() && dicts_.dict.HasNull(type);
  }

  // True if the chosen layer has no rope. Adds an assumption if the reason is
  // an absent switch.
  bool IsNope(const Question& question) const {
    const bool has_switch = model().Row(ReadingRule::kNoSwitch) == nullptr;
    if (!has_switch || !IsSwitchedOff(model())) {
      return IsNopeLayer(model(), question);
    }
    if (!config_.Contains(family_.rope_switch)) {
      config_.Assume(family_.rope_switch, SwitchValue(model()),
                     absl::StrCat("absent; default of the class of model_type ",
                                  model_type_, ": no layer rotates"));
    }
    return true;
  }

  // Warns of rotary keys that are not read and that differ from the result.
  void WarnOfUnreadKeys(const ModelRope& rope) const {
    // Two kinds of keys need no warning: base keys of other layer types, and
    // keys that do not affect rotation.
    for (const LayerKind& kind : family_.kinds) {
      config_.MarkRead(kind.theta_key);
    }
    for (const absl::string_view key : {"rotary_value", "rope_interleave"}) {
      config_.MarkRead(key);
    }
    for (const std::string& key : config_.Keys()) {
      const json& value = config_.At(key);
      const bool is_share =
          IsAmong(key,
                  "partial_rotary_factor rotary_pct rope_percent "
                  "rotary_emb_fraction") &&
          value.is_number();
      if (value.is_null() || config_.WasRead(key) ||
          !(is_share || absl::StartsWith(key, "rope_") ||
            absl::StartsWith(key, "rotary_"))) {
        continue;
      }
      if (is_share) {
        const auto channels =
            WholePart(value.get<double>() * static_cast<double>(rope.head_dim));
        if (channels == rope.spec.rotary_dim) continue;
        // For partial_rotary_factor, the warning leaves out the value. Doctor
        // then reports the key as config.key-unread, which is only a note.
        config_.Warn(
            key, key == "partial_rotary_factor" ? "" : " " + Shortened(value),
            " is not read: it gives ", channels, " of the ", rope.head_dim,
            " channels, and ", rules_.project, " rotates ",
            rope.spec.rotary_dim);
      } else if (!IsBaseName(key) || !rope.spec.rope_theta) {
        if (IsAmong(key, "rope_interleaved rotary_emb_interleaved") &&
            value == (rope.spec.pairing == Pairing::kInterleaved)) {
          continue;
        }
        config_.Warn(key, " ", Shortened(value), " is not read");
      } else if (value != *rope.spec.rope_theta) {
        config_.Warn(
            key, " ", Shortened(value), " is not read: ", rules_.project,
            " takes the base ", NumberText(*rope.spec.rope_theta),
            model_type_.empty() ? "" : " for model_type ", model_type_);
      }
    }
  }

  // Reads the dicts of the other layer types, too. A class builds the
  // frequencies of every type, so an error in one dict is an error of the file.
  // Assumptions and most warnings about these dicts are dropped.
  void CheckOtherTypes(const std::string& chosen) const {
    // After an earlier error, these checks would only repeat that error.
    if (!model().by_class() || !ok()) return;
    for (const std::string& type : Types()) {
      if (type == chosen || HasNullEntry(type)) continue;
      const Report told = report();
      RopeDict from = DictOf(type);
      ModelRope rope;
      from.head = HeadDim(model(), type);
      ReadRopeDict(from, &rope);
      if (!ok()) {
        report().status = OfLayers(type, report().status);
        return;
      }
      report() = told;
      if (report().warnings.empty()) WarnOfType(from);
      if (is_hf() && report().warnings.empty()) WarnOfRange(from, rope.spec);
      if (dicts_.nested) WarnOfNulls(from);
      const auto resolved =
          ResolveSpec(rope.spec, static_cast<std::int64_t>(from.head.value),
                      std::nullopt, MissingLength::kAssumeOriginal);
      if (!resolved.ok()) {
        report().Refuse(
            OfLayers(type, ConfigError("", resolved.status().message())));
        return;
      }
    }
  }

  // Returns the class whose rules apply to an unknown type.
  absl::string_view OtherClass() const {
    return family_.width == RotaryWidth::kMla ? "DeepSeek V3's class"
                                              : "Llama's class";
  }

  // Refuses an unknown type if no key in the file implies a rotation. The rules
  // of OtherClass() apply to all other unknown types. For transformers'
  // profile, a warning reports this.
  void CheckUnknown() const {
    if (model_type_.empty()) {
      if (!is_hf()) return;
      report().Warn(
          "model_type is absent; transformers refuses such a file, and it is "
          "read here as Llama's class");
    } else if (!HasRotaryKey(config_)) {
      report().Refuse(ConfigError(
          "model_type",
          absl::StrCat("is \"", model_type_,
                       "\", which is not known here, and the file has no "
                       "rotary key (rope_parameters, rope_scaling, "
                       "rope_theta, ...): nothing says that the model "
                       "rotates; add rope_theta if it does")));
    } else if (is_hf()) {
      report().Warn("model_type ", model_type_,
                    " is not known here to rotate: transformers refuses the "
                    "type, or does not rotate it; read as ",
                    OtherClass());
    }
  }

  void AssumeFamily() const {
    report().Assume(
        "pairing",
        family_.pairing == Pairing::kInterleaved ? "interleaved" : "half-split",
        absl::StrCat(
            "model_type ",
            model_type_.empty() ? "is absent"
                                : model_type_ + " is not known here",
            "; read as ", OtherClass(),
            family_.width == RotaryWidth::kMla ? ", by qk_rope_head_dim" : ""));
  }

  // True if the class has parameters for layer types that the dict lacks.
  bool FillsIn() const { return model().by_class() && family_.fills_in(); }

  // Returns the layer types that have parameters of their own; empty if all
  // layers share one set of parameters.
  std::vector<std::string> Types() const {
    if (dicts_.nested && !FillsIn()) {
      std::vector<std::string> types;
      for (const std::string& key : dicts_.dict.Keys()) {
        if (IsLayerType(model(), key)) types.push_back(key);
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

  // Returns the members of `types` that layer_types lists; all members if it
  // lists none of them.
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

  // True if layers of these types rotate differently, so that the caller must
  // choose a type.
  bool Differ(const std::vector<std::string>& types) const {
    if (types.size() < 2) return false;
    if (config_.Has("global_head_dim") || family_.global_head_dim > 0) {
      return true;
    }
    for (const std::string& type : types) {
      if (dicts_.nested && !FillsIn()) {
        if (dicts_.dict.At(type) != dicts_.dict.At(types[0])) return true;
      } else if (FindKind(type)->partial != FindKind(types[0])->partial) {
        return true;
      } else if (((dicts_.nested && dicts_.dict.Contains(type)) ||
                  FindKind(type)->scaled != FindKind(types[0])->scaled) &&
                 RopeType(DictOf(type)) != "default") {
        return true;
      } else {
        const Report told = report();
        const bool same =
            ReadTheta(DictOf(type)) == ReadTheta(DictOf(types[0]));
        if (ok()) report() = told;
        if (!same) return true;
      }
    }
    return false;
  }

  // Returns the layer type to read; empty if all layers share their parameters.
  std::string ChooseType(const Question& question) {
    const std::vector<std::string> types = Types();
    if (question.layer_index) return TypeAt(*question.layer_index, types);
    if (const auto& layer_type = question.layer_type) {
      const std::vector<std::string> accepted =
          types.empty() ? UsualTypes() : types;
      if (std::count(accepted.begin(), accepted.end(), *layer_type) == 0) {
        report().Refuse(FieldInvalid(
            "layer_type",
            absl::StrCat("\"", *layer_type, "\" is not of this model; it has ",
                         absl::StrJoin(accepted, ", "))));
      }
      return types.empty() ? "" : *layer_type;
    }
    const std::vector<std::string> used = UsedTypes(types);
    if (Differ(used)) {
      report().Refuse(FieldRequired(
          "layer_type",
          absl::StrCat("the model's layers differ: ", absl::StrJoin(used, ", "),
                       "; choose one, or a layer_index")));
    }
    return used.empty() ? "" : used[0];
  }

  // Returns the layer type to read for a layer that is chosen by its index.
  std::string TypeAt(std::int32_t index,
                     const std::vector<std::string>& types) const {
    CheckLayerIndex(config_, index);
    if (!ok() || types.empty()) return "";
    const std::string type = TypeOfLayer(model(), index);
    if (std::count(types.begin(), types.end(), type) > 0) return type;
    const std::string all = absl::StrJoin(types, ", ");
    report().Refuse(FieldInvalid(
        "layer_index",
        type.empty()
            ? absl::StrCat("the configuration does not tell the type of layer ",
                           index, "; choose layer_type: ", all)
            : absl::StrCat("layer ", index, " is of type ", type,
                           "; the configuration has no rope for it, only for ",
                           all)));
    return type;
  }

  // Returns the layer types that a caller may name if all layers share their
  // parameters.
  std::vector<std::string> UsualTypes() const {
    const std::vector<std::string> given = LayerTypes(config_);
    std::set<std::string> types(given.begin(), given.end());
    types.insert({"full_attention", "sliding_attention"});
    if (HasLayerList(family_)) types.insert("chunked_attention");
    return {types.begin(), types.end()};
  }

  void ReadQueryTemperature(bool nope, ModelRope* rope) const {
    if (!nope || !family_.scales_queries) return;
    constexpr absl::string_view kTuning = "attn_temperature_tuning";
    const json& tuning = config_.At(kTuning);
    // Published configurations have true or the number 4 for this key. The
    // class's default is true.
    const bool is_off = tuning.is_null() || tuning == false || tuning == 0;
    if (config_.Contains(kTuning) && is_off) return;
    rope->query_scale =
        QueryScale{config_.Number("attn_scale").value_or(0.1),
                   config_.Number("floor_scale").value_or(8192), 1};
  }

  // Changes `rope` from the encoding of a layer's attention to the encoding of
  // the layer's indexer.
  void MakeIndexer(ModelRope* rope) const {
    if (family_.indexer == Pairing::kUnspecified) {
      report().Refuse(FieldInvalid(
          "part",
          absl::StrCat("no indexer is known for model_type ",
                       given_type_.empty() ? "(absent)" : given_type_)));
      return;
    }
    const absl::string_view key = family_.indexer_key;
    std::optional<std::int64_t> width = config_.Integer(key);
    // MiniMax M3's class prefers the older key sparse_index_dim, if the file
    // has it.
    const JsonObject older = config_.Object("sparse_attention_config");
    if (const auto given = older.Integer("sparse_index_dim")) width = given;
    if (!width && family_.indexer_head_dim == 0) {
      config_.Fail(key, "is absent: without it the class of model_type ",
                   given_type_, " has no indexer");
      return;
    }
    if (!width) {
      width = family_.indexer_head_dim;
      config_.Assume(key, absl::StrCat(*width), DefaultOf(rules_));
    }
    rope->head_dim = *width;
    // The indexer scales scores only by 1 / sqrt(head_dim).
    rope->softmax_scale_multiplier = 1;
    if (rope->spec.nope) return;
    if (rope->head_dim < rope->spec.rotary_dim) {
      config_.Fail(key, "is ", rope->head_dim, ", and ",
                   family_.width == RotaryWidth::kMla
                       ? "qk_rope_head_dim "
                       : "the channels that turn are ",
                   rope->spec.rotary_dim,
                   "; an indexer rotates that slice of its heads");
      return;
    }
    rope->spec.slice = family_.indexer_slice;
    rope->spec.pairing = PairingOfIndexer();
    // transformers writes the indexer's interleaved pairs in the same order as
    // the attention's pairs.
    rope->spec.output_pairing =
        rope->spec.pairing == Pairing::kInterleaved && is_hf()
            ? family_.output_pairing
            : Pairing::kUnspecified;
  }

  // Returns the indexer's pairing. vLLM's modules read it from a key that
  // transformers does not read. Without the key, the class decides.
  Pairing PairingOfIndexer() const {
    constexpr absl::string_view kKey = "indexer_rope_interleave";
    const std::optional<bool> given = config_.Flag(kKey);
    if (!given) return family_.indexer;
    const Pairing pairing =
        *given ? Pairing::kInterleaved : Pairing::kHalfSplit;
    if (rules_.vllm_modules) return pairing;
    if (pairing != family_.indexer) {
      config_.Warn(
          kKey, " is ", *given ? "true" : "false",
          ", which transformers does not read: its class's indexer has ",
          *given ? "half-split" : "interleaved", " pairs, and these are used");
    }
    return family_.indexer;
  }

  const JsonObject config_;
  const std::string given_type_;
  const std::string model_type_;
  const ProfileRules rules_;
  const Family family_;
  const ClassDefaults* const defaults_;
  const json class_dict_;
  const RopeDicts dicts_;
};

}  // namespace

ModelRope ReadLanguageModel(const JsonObject& config,
                            const std::string& model_type,
                            const Question& question) {
  ConfigReader text(config, model_type, question.reader);
  if (!config.report().ok()) return {};
  return text.Read(question);
}

}  // namespace posenc::core::interpretation
