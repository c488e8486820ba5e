#include "core/interpretation/composite.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/interpretation/classes/class_defaults.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/known_keys.h"
#include "core/interpretation/classes/profile.h"

namespace posenc::core::interpretation {
namespace {

// Keys of the part that describes the language model. If a file has several of
// these keys, the first in this list counts.
constexpr char kLanguageKeys[] =
    "text_config llm_config language_config thinker_config vlm_config decoder";

// Model types that contain a language model of another type. Files of these
// types may leave out the language model's type.
struct Parents {
  absl::string_view model_types;  // separated by blanks
  absl::string_view part;         // the type of their language model
  // JSON: values that the class adds for keys that a text_config lacks.
  absl::string_view defaults = {};
};
constexpr Parents kParents[] = {
#include "parents.inc"
};

// How classes read the parts of their files.
enum class PartRule {
  kComposite,    // parts name their own types, or rotate on their own
  kOwnText,      // the text part has the class's type; only that part is read
  kHasText,      // the class has a text_config
  kNoLength,     // the class reads a rotary dict, but no length
  kFlat,         // the class's own files are flat
  kReadsPart,    // the language model is under `keys`, not text_config
  kNestsText,    // the language model is in the text_config of a part in `keys`
  kReadsBeside,  // rotary keys beside the text_config are for another part
};
struct PartRow {
  PartRule rule;
  absl::string_view model_types;  // separated by blanks
  absl::string_view keys = {};    // separated by blanks
};
constexpr PartRow kPartRows[] = {
#include "parts.inc"
};

bool Holds(PartRule rule, absl::string_view model_type) {
  return std::any_of(
      std::begin(kPartRows), std::end(kPartRows), [&](const PartRow& row) {
        return row.rule == rule && IsAmong(model_type, row.model_types);
      });
}

// Returns the keys of the part that the class reads as its language model.
absl::string_view TextKeys(absl::string_view model_type) {
  for (const PartRow& row : kPartRows) {
    if (row.rule == PartRule::kReadsPart &&
        IsAmong(model_type, row.model_types)) {
      return row.keys;
    }
  }
  return "text_config";
}

const Parents* FindParents(absl::string_view model_type) {
  return FindRow(kParents, &Parents::model_types, ModelKey(model_type));
}

// Returns the text if the value is a string; else empty.
std::string TextOf(const json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

// Returns the model_type if it is a string; else empty.
std::string TypeOf(const json& part) {
  return TextOf(part.value("model_type", json()));
}

// True if the configuration itself, not one of its parts, has a key about
// heads.
bool HasHeads(const JsonObject& config) {
  for (const absl::string_view key :
       {"num_attention_heads", "n_head", "n_heads", "num_heads", "head_dim",
        "qk_rope_head_dim"}) {
    if (config.Contains(key)) return true;
  }
  return false;
}

// True if a key or the model_type of the part implies a rotation.
bool Rotates(const json& part) {
  if (!part.is_object()) return false;
  for (const auto& [key, value] : part.items()) {
    if (absl::StartsWith(key, "rope_") && !value.is_null()) return true;
  }
  const Family& family = FindFamily(TypeOf(part));
  return family.known() && family.nope != NopeRule::kEveryLayer;
}

constexpr char kSoundKeys[] =
    "audio_config audio_encoder_config codec_config depth_decoder_config";

// True if the type has a text part that rotates. In this case, the audio part
// is not the language model.
bool HasOwnText(const JsonObject& config) {
  const std::string type = TextOf(config.At("model_type"));
  return FindFamily(type).known() || Holds(PartRule::kOwnText, type);
}

// True if the class has no part `key`, and reads only the keys outside of that
// part.
bool LacksPart(const JsonObject& config, absl::string_view key) {
  const std::string name = TextOf(config.At("model_type"));
  return FindClassDefaults(ModelKey(name)) != nullptr &&
         FindParents(name) == nullptr && !Holds(PartRule::kOwnText, name) &&
         !(key == "text_config" && Holds(PartRule::kHasText, name));
}

// True if the class reads `part`, a text_config, as a configuration of the
// class's own type, although `part` names the type `given` of another family.
bool IgnoresType(absl::string_view model_type, const JsonObject& part,
                 absl::string_view given) {
  const Parents* const parents = FindParents(model_type);
  return absl::EndsWith(part.Path(), "text_config") &&
         (Holds(PartRule::kOwnText, model_type) ||
          (parents == nullptr && Holds(PartRule::kHasText, model_type))) &&
         &FindFamily(given) !=
             &FindFamily(parents != nullptr ? parents->part : model_type);
}

// Returns the key of the part to read; empty if `config` is the part itself.
std::string PartKey(const JsonObject& config) {
  for (const absl::string_view key : absl::StrSplit(kLanguageKeys, ' ')) {
    if (config.At(key).is_null()) continue;
    // A nested part is not read if the class does not have it.
    if (!config.Path().empty() && HasHeads(config) && LacksPart(config, key)) {
      continue;
    }
    return std::string(key);
  }
  if (HasHeads(config)) return "";
  for (const absl::string_view key : {"decoder_config", "encoder_config"}) {
    if (config.At(key).is_object()) return std::string(key);
  }
  for (const std::string& key : config.Keys()) {
    const json& part = config.At(key);
    if (!Rotates(part)) continue;
    // DBRX's attn_config is not a part, because it has keys of the whole model,
    // such as rope_theta. The type identifies parts whose key does not end in
    // _config. For example, LFM2-Audio's language model has the key `lfm`. The
    // audio part of a type with a text part is not the language model.
    const bool is_part =
        (absl::EndsWith(key, "_config") && key != "attn_config") ||
        FindFamily(TypeOf(part)).known();
    if (is_part && !(IsAmong(key, kSoundKeys) && HasOwnText(config))) {
      return key;
    }
  }
  return "";
}

// Warns of rotary keys next to a part, if the part does not repeat their
// values.
void WarnOfKeysBeside(const JsonObject& config, const std::string& key) {
  const JsonObject part = config.Peek().Object(key);
  const bool lacks_length =
      Holds(PartRule::kNoLength, config.Peek().Text("model_type").value_or(""));
  for (const absl::string_view name : {"rope_scaling", "rope_parameters",
                                       "rope_theta", "partial_rotary_factor"}) {
    if (!config.Contains(name) || part.Keys().empty()) continue;
    const json& value = config.At(name);
    if (lacks_length && IsAmong(name, "rope_scaling rope_parameters")) {
      config.Warn(name, " stands beside ", key,
                  ": transformers looks there for max_position_embeddings, "
                  "too, and fails; ",
                  key, " is read");
      continue;
    }
    if (value.is_null()) continue;
    const json& inner = part.At(name);
    if (inner == value) {
      if (name == "rope_parameters" && value.contains("rope_type") &&
          !value.contains("rope_theta")) {
        config.Warn(
            name, " has no rope_theta beside ", key,
            "; transformers checks the dict there, too, and refuses it; ", key,
            " is read");
      }
      continue;
    }
    config.Warn(
        name, " ", Shortened(value), " is not read by transformers: ", key,
        " describes the model that rotates",
        part.Contains(name) ? absl::StrCat(", and has ", Shortened(inner))
                            : ", and does not have the key");
  }
}

}  // namespace

JsonObject LanguagePart(JsonObject config, std::string* model_type) {
  for (;;) {
    const auto given = config.Text("model_type");
    if (given && !IgnoresType(*model_type, config, *given)) {
      *model_type = *given;
    } else if (const Parents* parents = FindParents(*model_type)) {
      *model_type = std::string(parents->part);
    }
    const std::string key = PartKey(config);
    if (key.empty()) {
      // A file of a composite type may be flat, with the language model's keys
      // at the top level.
      if (const Parents* parents = FindParents(*model_type)) {
        *model_type = std::string(parents->part);
      }
      return config;
    }
    config = config.Object(key);
  }
}

std::vector<std::string> AddParentsDefaults(json* root) {
  std::vector<std::string> added;
  if (!root->is_object()) return added;
  const Parents* parents = FindParents(TypeOf(*root));
  if (parents == nullptr || parents->defaults.empty()) return added;
  const auto part = root->find("text_config");
  if (part == root->end() || !part->is_object()) return added;
  const json defaults = json::parse(parents->defaults);
  for (const auto& [key, value] : defaults.items()) {
    if (part->contains(key)) continue;
    (*part)[key] = value;
    added.push_back(key);
  }
  return added;
}

bool ListsMlps(const json& layer_types, absl::string_view model_type) {
  return FindFamily(model_type).lists_mlps && layer_types.is_array() &&
         std::count(layer_types.begin(), layer_types.end(), "mlp") > 0;
}

void WarnOfFile(const json& root, Report* report) {
  const JsonObject whole(&root, "", report);
  const std::string key = PartKey(whole);
  const std::string type = whole.Text("model_type").value_or("");
  const bool has_parent = FindParents(type) != nullptr;
  if ((has_parent || Holds(PartRule::kOwnText, type)) &&
      !IsAmong(key, TextKeys(type)) &&
      !(key.empty() && Holds(PartRule::kFlat, type)) &&
      !absl::EndsWith(type, "_text")) {
    report->Warn(
        TextKeys(type),
        " is absent: transformers takes the default of its class of "
        "model_type ",
        type, "; ",
        key.empty() ? "the file's own keys are" : absl::StrCat(key, " is"),
        " read here");
  }
  if (key.empty()) return;
  JsonObject part = whole.Peek().Object(key);
  CheckRefusals(whole, type, absl::StrCat(key, "."), true);
  const auto own_type = part.Peek().Text("model_type");
  if (own_type && IgnoresType(type, part, *own_type)) {
    part.Warn("model_type", " ", *own_type,
              " is not read: transformers' class of model_type ", type,
              " takes its own type for every text_config");
  }
  if (!type.empty() && own_type == type) {
    report->Warn("model_type ", type, " is that of the file and of its ", key,
                 ": transformers' class reads the file's own keys and not ",
                 key, "; ", key, " is read here");
  } else if (LacksPart(whole, key)) {
    report->Warn("the class of model_type ", type, " has no ", key,
                 ": transformers reads the file's own keys and not ", key, "; ",
                 key, " is read here");
  }
  if (!Holds(PartRule::kReadsBeside, type)) {
    WarnOfKeysBeside(whole, key);
  }
  if (Holds(PartRule::kNestsText, type) && IsAmong(key, TextKeys(type)) &&
      PartKey(part).empty()) {
    part.Warn("text_config",
              " is absent: transformers takes the default of its class; ", key,
              "'s own keys are read here");
  }
  // Parts may be nested. For example, ColQwen2's vlm_config has a text_config.
  for (std::string inner = PartKey(part); !inner.empty();
       inner = PartKey(part)) {
    WarnOfKeysBeside(part, inner);
    part = part.Peek().Object(inner);
  }
  if (FindFamily(type).known() || has_parent ||
      Holds(PartRule::kComposite, ModelKey(type))) {
    return;
  }
  report->Warn("model_type ",
               type.empty() ? "of the file is absent"
                            : absl::StrCat("\"", type,
                                           "\" of the file is not known here"),
               ": transformers refuses it; its ", key, " is read");
}

}  // namespace posenc::core::interpretation
