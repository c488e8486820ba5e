#include "core/model/config.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/error.h"
#include "core/model/families.h"
#include "core/model/json_object.h"
#include "core/model/rope_config.h"

namespace posenc::core {
namespace {

using nlohmann::json;

// A config.json is some KiB deep 5 levels. The parser's values free themselves
// recursively, so depth is bounded before they exist.
constexpr std::size_t kMaxConfigBytes = 1 << 20;
constexpr int kMaxConfigDepth = 64;

absl::Status CheckSize(absl::string_view text) {
  if (text.size() > kMaxConfigBytes) {
    return ConfigError("", absl::StrCat(text.size(), " bytes; at most ",
                                        kMaxConfigBytes, " are read"));
  }
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxConfigDepth) {
        return ConfigError("", absl::StrCat("nested deeper than ",
                                            kMaxConfigDepth, " levels"));
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return absl::OkStatus();
}

// The language model's part of a multimodal configuration.
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
               absl::Status* status)
      : config_(config),
        model_type_(model_type),
        family_(FindFamily(model_type, &known_family_)),
        dict_(config.Has("rope_scaling") ? config.Object("rope_scaling")
                                         : config.Object("rope_parameters")),
        nested_(IsNested()),
        status_(status) {}

  absl::StatusOr<ModelRope> Read(
      const std::optional<std::string>& layer_type,
      const std::optional<std::int32_t>& layer_index) {
    ModelRope rope;
    auto nope = ReadNope(layer_type, layer_index);
    if (!nope.ok()) return nope.status();
    auto type = ChooseType(layer_type, layer_index);
    if (!type.ok()) return type.status();
    rope.head_dim = HeadDim(*type);
    ReadQueryTemperature(*nope, &rope);
    if (*nope || (nested_ && dict_.HasNull(*type))) {
      rope.spec = RopeSpec{.nope = true};
    } else {
      if (!known_family_) AssumeFamily(&rope);
      RopeDict from = {.config = config_,
                       .dict = nested_ ? dict_.Object(*type) : dict_,
                       .family = family_,
                       .kind = FindKind(*type),
                       .nested = nested_,
                       .head_dim = rope.head_dim};
      ReadRopeDict(from, &rope);
      // Keys of the other kind of layers are known too.
      for (const LayerKind& kind : family_.kinds) config_.Has(kind.theta_key);
      for (const std::string& key : config_.Keys()) {
        if ((absl::StartsWith(key, "rope_") ||
             absl::StartsWith(key, "rotary_")) &&
            !config_.WasRead(key)) {
          rope.warnings.push_back(
              absl::StrCat(config_.Path(key), " is not read"));
        }
      }
    }
    if (!status_->ok()) return *status_;
    return rope;
  }

 private:
  // A dict of dicts, one for each type of layer; null for one without rope.
  bool IsNested() const {
    for (const std::string& key : dict_.Keys()) {
      if (dict_.Find(key)->is_object()) return true;
    }
    return false;
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

  // Layer types that have parameters of their own; empty where all share one
  // set.
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

  // Types among `types` that the model has layers of.
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

  bool Differ(const std::vector<std::string>& types) const {
    if (types.size() < 2) return false;
    if (config_.Has("global_head_dim")) return true;
    for (const std::string& type : types) {
      if (nested_) {
        if (*dict_.Find(type) != *dict_.Find(types[0])) return true;
      } else if (FindKind(type)->scaled != FindKind(types[0])->scaled &&
                 RopeType(dict_, family_) != "default") {
        return true;
      } else {
        ModelRope ignored;
        const RopeDict a = {config_, dict_, family_, FindKind(type)};
        const RopeDict b = {config_, dict_, family_, FindKind(types[0])};
        if (ReadTheta(a, &ignored) != ReadTheta(b, &ignored)) return true;
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

  // Empty where the configuration does not say.
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

  // Whether the chosen layer is one without rope.
  absl::StatusOr<bool> ReadNope(
      const std::optional<std::string>& layer_type,
      const std::optional<std::int32_t>& layer_index) {
    if (config_.Has("position_embedding_type") &&
        *config_.Find("position_embedding_type") == "nope") {
      return true;
    }
    if (family_.nope == NopeRule::kNone) return false;
    if (layer_index) {
      const absl::Status valid = CheckIndex(*layer_index);
      if (!valid.ok()) return valid;
    }
    if (family_.nope == NopeRule::kFullAttention) {
      // transformers' classes have a window of 4096 unless told null.
      if (config_.HasNull("sliding_window")) return false;
      if (layer_type) return *layer_type == "full_attention";
      if (layer_index) return TypeOfLayer(*layer_index) == "full_attention";
      return FieldRequired(
          "layer_type",
          "the model's layers differ: full_attention has no rope, "
          "sliding_attention has; choose one, or a layer_index");
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

  // Llama 4 scales the queries of its layers without rope.
  void ReadQueryTemperature(bool nope, ModelRope* rope) const {
    if (!nope || model_type_.rfind("llama4", 0) != 0) return;
    const json* tuning = config_.Find("attn_temperature_tuning");
    // Published as true or as a number, 4; the class's default is true.
    if (tuning != nullptr && (tuning->is_null() || *tuning == false ||
                              (tuning->is_number() && *tuning == 0))) {
      return;
    }
    rope->query_scale =
        QueryScale{config_.Number("attn_scale").value_or(0.1),
                   config_.Number("floor_scale").value_or(8192), 1};
  }

  std::int64_t HeadDim(const std::string& type) const {
    if (family_.width == RotaryWidth::kMla) {
      const std::int64_t rope = config_.Integer("qk_rope_head_dim").value_or(0);
      return rope + config_.Integer("qk_nope_head_dim").value_or(0);
    }
    std::vector<absl::string_view> keys = {family_.head_dim_key, "head_dim",
                                           "attention_head_dim"};
    if (type == "full_attention") keys.insert(keys.begin(), "global_head_dim");
    if (const auto head_dim = config_.FirstInteger(keys)) return *head_dim;
    if (family_.head_dim > 0) return family_.head_dim;
    const auto hidden =
        config_.FirstInteger({"hidden_size", "n_embd", "d_model", "dim"});
    const auto heads = config_.FirstInteger(
        {"num_attention_heads", "n_head", "n_heads", "num_heads",
         "decoder_num_attention_heads", "encoder_num_attention_heads"});
    if (!hidden || !heads) {
      config_.Fail(hidden ? "num_attention_heads" : "hidden_size",
                   "is missing, and head_dim is too; the width of a head is "
                   "hidden_size / num_attention_heads");
      return 0;
    }
    if (*heads < 1 || *hidden < 1) {
      config_.Fail(*heads < 1 ? "num_attention_heads" : "hidden_size",
                   absl::StrCat("is ", *heads < 1 ? *heads : *hidden,
                                "; it must be at least 1"));
      return 0;
    }
    return *hidden / *heads;
  }

  const JsonObject config_;
  const std::string model_type_;
  bool known_family_;
  const Family& family_;
  const JsonObject dict_;
  const bool nested_;
  absl::Status* const status_;
};

}  // namespace

absl::StatusOr<ModelRope> ReadModelConfig(
    absl::string_view config_json, Profile profile,
    const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index) {
  if (profile != Profile::kHf) {
    return MakeError(absl::StatusCode::kUnimplemented,
                     ErrorReason::kFieldInvalid, "profile",
                     "this server reads configurations as transformers does "
                     "only; leave it unset or send PROFILE_HF");
  }
  absl::Status status = CheckSize(config_json);
  if (!status.ok()) return status;
  const json root = json::parse(config_json, nullptr, false);
  if (!root.is_object()) {
    return ConfigError("",
                       root.is_discarded()
                           ? "is not JSON"
                           : absl::StrCat("is JSON of type ", root.type_name(),
                                          "; it must be an object"));
  }
  std::string model_type;
  const JsonObject config =
      LanguagePart(JsonObject(&root, "", &status), &model_type);
  ConfigReader reader(config, model_type, &status);
  if (!status.ok()) return status;
  absl::StatusOr<ModelRope> rope = reader.Read(layer_type, layer_index);
  // A value of the wrong type explains what failed after it.
  if (!status.ok()) return status;
  return rope;
}

}  // namespace posenc::core
