#include "core/interpretation/known_keys.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/interpretation/families.h"
#include "core/interpretation/layer_entries.h"
#include "core/interpretation/profile.h"
#include "core/interpretation/provenance.h"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;

// Keys by the type of their values; null stands for an absent one everywhere.
constexpr char kIntegers[] =
    "hidden_size num_hidden_layers num_attention_heads "
    "max_position_embeddings head_dim global_head_dim n_embd n_head n_layer "
    "n_positions qk_rope_head_dim qk_nope_head_dim "
    "sliding_window rotary_dim rotary_embedding_base full_attention_interval "
    "no_rope_layer_interval";
constexpr char kNumbers[] =
    "partial_rotary_factor rotary_pct rotary_emb_base rope_local_base_freq "
    "global_rope_theta local_rope_theta swa_rope_theta "
    "original_max_position_embeddings";
constexpr char kTexts[] = "model_type position_embedding_type";
constexpr char kObjects[] = "rope_scaling rope_parameters per_layer_config";
constexpr char kTextLists[] = "layers_block_type";

constexpr char kDictNumbers[] =
    "rope_theta factor beta_fast beta_slow mscale mscale_all_dim "
    "attention_factor low_freq_factor high_freq_factor "
    "original_max_position_embeddings partial_rotary_factor";
constexpr char kDictTexts[] = "rope_type type";
constexpr char kDictLists[] = "short_factor long_factor mrope_section";

// Keys for which transformers' classes take no null: head_dim only where the
// class has a number for it.
constexpr char kNeverNull[] =
    "rope_theta original_max_position_embeddings hidden_size n_embd "
    "num_attention_heads n_head num_hidden_layers max_position_embeddings "
    "n_positions global_head_dim qk_rope_head_dim kv_channels rotary_dim "
    "rotary_embedding_base";
constexpr char kNeverNullInDicts[] =
    "rope_type type rope_theta partial_rotary_factor mrope_section "
    "original_max_position_embeddings";

// Integers that are sizes.
constexpr char kSizes[] =
    "hidden_size num_hidden_layers num_attention_heads head_dim "
    "max_position_embeddings";

// The types of layers that transformers 5.23 accepts, in newer names.
constexpr char kAccepted[] =
    "full_attention sliding_attention chunked_attention window_attention "
    "indexed_attention compressed_sparse_attention "
    "heavily_compressed_attention minimax_m3_sparse conv moe hybrid "
    "hybrid_sliding reference_sliding_attention linear_attention";

// Values that transformers' classes refuse, or do not read.
enum class RefusedValue {
  kGiven,
  kNull,
  kEmpty,
  kTrue,
  kZero,
  kNotPositive,
  kNumber,
  kText
};

struct Refusal {
  absl::string_view model_types;  // separated by blanks; empty: all
  absl::string_view key;          // may be of an object: "attn_config.rope"
  RefusedValue when;
  absl::string_view without;  // a key without which it is; empty: any file
  absl::string_view says;     // {} is the model type
};
constexpr Refusal kRefusals[] = {
#include "refusals.inc"
};

// Reads each key as the type that it should have: what is not fails there.
void CheckTypes(const JsonObject& object, absl::string_view key) {
  if (IsAmong(key, kIntegers)) {
    const auto value = object.PeekInteger(key);
    if (value && *value < 1 && IsAmong(key, kSizes)) {
      object.Fail(key, absl::StrCat("is ", *value, "; it must be at least 1"));
    }
  } else if (IsAmong(key, kNumbers)) {
    object.PeekNumber(key);
  } else if (IsAmong(key, kTexts)) {
    object.PeekText(key);
  } else if (IsAmong(key, kObjects)) {
    object.PeekObject(key);
    if (key == "per_layer_config") CheckLayerEntries(object.PeekObject(key));
  } else if (key == "layer_types") {
    LayerTypes(object);
  } else if (IsAmong(key, kTextLists)) {
    const json& list = *object.Find(key);
    bool is_list = list.is_array() || list.is_null();
    for (const json& text : list) is_list = is_list && text.is_string();
    if (!is_list) object.Fail(key, "must be an array of strings");
  }
}

// Types that the class, other than most, does not have.
void WarnOfClassTypes(const ModelLayers& model,
                      std::vector<std::string>* warnings) {
  const json* list = model.config.Find("layer_types");
  if (list == nullptr || !list->is_array()) return;
  const absl::string_view accepted = model.family.layer_types;
  if (accepted.empty()) return;
  for (const json& type : *list) {
    if (!type.is_string() ||
        IsAmong(type.get_ref<const std::string&>(), accepted)) {
      continue;
    }
    Warn(warnings, model.config, "layer_types", " has ", Shortened(type),
         ", and transformers' class of model_type ", model.model_type,
         " takes ", absl::StrReplaceAll(accepted, {{" ", ", "}}),
         " only: it refuses the file");
    return;
  }
}

// A class that makes the last layer one of full attention.
void WarnOfLastType(const ModelLayers& model,
                    std::vector<std::string>* warnings) {
  const std::vector<std::string> types = LayerTypes(model.config);
  if (!model.family.forces_last || types.empty() ||
      types.back() == "full_attention") {
    return;
  }
  Warn(warnings, model.config, "layer_types", " ends in \"", types.back(),
       "\"; transformers' class of model_type ", model.model_type,
       " makes the last layer one of full_attention, and so is it read");
}

// Null if the key, or the object that it is of, is absent.
const json* ValueAt(const JsonObject& config, absl::string_view key) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(key, absl::MaxSplits('.', 1));
  const json* const value = config.Find(parts.first);
  if (parts.second.empty() || value == nullptr) return value;
  if (!value->is_object()) return nullptr;
  const auto it = value->find(std::string(parts.second));
  return it == value->end() ? nullptr : &*it;
}

bool IsRefused(const json& value, RefusedValue when) {
  switch (when) {
    case RefusedValue::kGiven:
      return true;
    case RefusedValue::kNull:
      return value.is_null();
    case RefusedValue::kEmpty:
      return value == json::object();
    case RefusedValue::kTrue:
      return value == true;
    case RefusedValue::kZero:
      return value == 0;
    case RefusedValue::kNotPositive:
      return value.is_number() && value < 1;
    case RefusedValue::kNumber:
      return value.is_number();
    case RefusedValue::kText:
      return value.is_string();
  }
  return false;
}

// Says the rows of rows/refusals.json that a file meets, one for a key.
void WarnOfRows(const ModelLayers& model, std::vector<std::string>* warnings) {
  absl::string_view said;
  for (const Refusal& row : kRefusals) {
    if (row.key == said || (!row.model_types.empty() &&
                            !IsAmong(model.model_type, row.model_types))) {
      continue;
    }
    const json* const value = ValueAt(model.config, row.key);
    const json* const other = ValueAt(model.config, row.without);
    if (value == nullptr || !IsRefused(*value, row.when) ||
        (other != nullptr && !other->is_null())) {
      continue;
    }
    said = row.key;
    Warn(warnings, model.config, row.key, " is ",
         row.when == RefusedValue::kGiven ? "given" : Shortened(*value),
         absl::StrReplaceAll(row.says, {{"{}", model.model_type}}));
  }
}

// Lists with an element for each layer that classes read.
void WarnOfListLengths(const ModelLayers& model,
                       const std::optional<std::int64_t>& layers,
                       std::vector<std::string>* warnings) {
  const bool is_llama = absl::StartsWith(model.model_type, "llama4");
  const NopeRule nope = model.family.nope;
  const std::pair<absl::string_view, bool> lists[] = {
      {"no_rope_layers", nope == NopeRule::kLayerList},
      {"layer_rope_theta",
       model.family.layer_bases || nope == NopeRule::kFromLast},
      {"hybrid_layer_pattern", true},
      {"compress_ratios", true}};
  for (const auto& [key, is_read] : lists) {
    const json* list = model.config.Find(key);
    if (!layers || !is_read || list == nullptr || !list->is_array()) continue;
    const auto size = static_cast<std::int64_t>(list->size());
    // Llama 4's class takes an empty list for an absent one. Lists of other
    // marks may go on with layers that predict more tokens.
    if (size == *layers || (size == 0 && is_llama) ||
        (size > *layers && !IsAmong(key, "no_rope_layers layer_rope_theta"))) {
      continue;
    }
    Warn(warnings, model.config, key, " has ", size,
         " elements, and num_hidden_layers is ", *layers,
         size < *layers ? "; transformers' class fails at the layers past them"
         : is_llama     ? "; transformers' class refuses that"
                        : "; those past the layers are not read");
  }
}

// A list that says which layers have no rope.
void WarnOfNopeList(const ModelLayers& model,
                    std::vector<std::string>* warnings) {
  const JsonObject& config = model.config;
  if (model.family.nope != NopeRule::kLayerList) return;
  const json* list = config.Find("no_rope_layers");
  if (list == nullptr || !list->is_array()) return;
  if (std::any_of(list->begin(), list->end(),
                  [](const json& one) { return one.is_number_float(); })) {
    Warn(warnings, config, "no_rope_layers", " is ", Shortened(*list),
         ", and transformers refuses elements that are no integers; 0 is read "
         "as no rope");
  }
  if (std::any_of(list->begin(), list->end(), [](const json& one) {
        return one.is_number() && one != 0 && one != 1;
      })) {
    Warn(warnings, config, "no_rope_layers", " is ", Shortened(*list),
         ", which looks like layers' indices; transformers' class reads an "
         "element for each layer, 0 for one without rope and else 1, and so is "
         "it read here");
  }
  if (!list->empty() && std::all_of(list->begin(), list->end(),
                                    [](const json& one) { return one == 0; })) {
    Warn(warnings, config, "no_rope_layers",
         " is 0 for every layer, so that none rotates; transformers' class "
         "makes frequencies that no layer takes");
  }
}

}  // namespace

void CheckKnownKeys(const JsonObject& config) {
  for (const std::string& key : config.Keys()) CheckTypes(config, key);
}

void CheckRopeKeys(const JsonObject& dict) {
  for (const std::string& key : dict.Keys()) {
    if (IsAmong(key, kDictNumbers)) {
      dict.PeekNumber(key);
    } else if (IsAmong(key, kDictTexts)) {
      dict.PeekText(key);
    } else if (IsAmong(key, kDictLists)) {
      dict.PeekNumbers(key);
    }
  }
}

void WarnOfRefusals(const ModelLayers& model, const ClassDefaults* defaults,
                    std::vector<std::string>* warnings) {
  const JsonObject& config = model.config;
  for (const std::string& key : config.Keys()) {
    const json& value = *config.Find(key);
    bool is_base = key == model.family.theta_key;
    for (const LayerKind& kind : model.family.kinds) {
      is_base = is_base || (!kind.type.empty() && kind.theta_key == key);
    }
    // DBRX's class reads the file's own names, and takes null for these.
    const bool is_never_null =
        is_base || (IsAmong(key, kNeverNull) && model.model_type != "dbrx") ||
        (key == "head_dim" && defaults != nullptr && defaults->head_dim > 0) ||
        (key == "rope_interleave" && model.model_type == "glm4_moe_lite");
    // Null is a value of these.
    const bool is_switch =
        (model.family.nope == NopeRule::kNullBase && key == "rope_theta") ||
        (model.family.width == RotaryWidth::kRotaryDim && key == "rotary_dim");
    if (value.is_null() && is_never_null && !is_switch) {
      Warn(warnings, config, key,
           " is null, for which transformers wants a value; read as absent");
    }
  }
  if (IsRemote(model.model_type)) {
    warnings->push_back(absl::StrCat(
        "model_type ", model.model_type,
        " has no class in transformers, which refuses it without the code "
        "beside its checkpoints; it is read as that code does"));
  }
  const std::vector<std::string> types = LayerTypes(config);
  auto layers = config.PeekInteger("num_hidden_layers");
  if (!layers && defaults != nullptr && defaults->num_hidden_layers > 0) {
    layers = defaults->num_hidden_layers;
  }
  WarnOfLayerEntries(model, layers, warnings);
  WarnOfListLengths(model, layers, warnings);
  WarnOfNopeList(model, warnings);
  const json* list = config.Find("layer_types");
  if (list != nullptr && list->is_array() && layers &&
      *layers != static_cast<std::int64_t>(types.size())) {
    Warn(warnings, config, "layer_types", " has ", types.size(),
         " elements, and num_hidden_layers is ", *layers,
         "; transformers refuses that");
  }
  const json* const is_long = config.Find("use_long_context");
  const auto maximum = config.PeekInteger("max_position_embeddings");
  if (model.model_type == "zamba2" && is_long != nullptr &&
      *is_long == json(true) && maximum && *maximum != 16384) {
    Warn(warnings, config, "max_position_embeddings", " is ", *maximum,
         ", and use_long_context is true, by which transformers' class of "
         "model_type zamba2 takes 16384; so it is read here");
  }
  const json* thetas = config.Find("layer_rope_theta");
  if (thetas != nullptr && !thetas->is_null() && *thetas != json::array() &&
      !model.family.layer_bases && model.family.nope != NopeRule::kFromLast) {
    Warn(warnings, config, "layer_rope_theta", " is ", Shortened(*thetas),
         ", which transformers' class of model_type ", model.model_type,
         " does not read: its layers turn alike; the list is used here");
  }
  for (const std::string& type : types) {
    if (IsAmong(type, kAccepted)) continue;
    Warn(warnings, config, "layer_types", " has \"", type,
         "\", which is no type of layer that "
         "transformers knows, and refused there");
    break;
  }
  WarnOfClassTypes(model, warnings);
  WarnOfLastType(model, warnings);
  WarnOfRows(model, warnings);
  const json* other_width = config.Find("n_embed");
  if (model.model_type == "falcon" && other_width != nullptr &&
      !other_width->is_null()) {
    const json* width = config.Find("hidden_size");
    if (width == nullptr || *width != *other_width) {
      Warn(warnings, config, "n_embed", " is ", Shortened(*other_width),
           ", which transformers' class of model_type falcon takes for "
           "hidden_size, or refuses; hidden_size is read");
    }
  }
  const auto hidden = config.PeekInteger("hidden_size");
  const auto heads = config.PeekInteger("num_attention_heads");
  if (hidden && heads && *heads > 0 && *hidden % *heads != 0 &&
      defaults != nullptr && defaults->divided) {
    Warn(warnings, config, "hidden_size", " is ", *hidden,
         ", and num_attention_heads ", *heads,
         " does not divide it; transformers refuses that");
  }
}

void WarnOfNulls(const JsonObject& dict, std::vector<std::string>* warnings) {
  for (const std::string& key : dict.Keys()) {
    if (dict.Find(key)->is_null() && IsAmong(key, kNeverNullInDicts)) {
      Warn(warnings, dict, key,
           " is null, with which transformers fails; read as absent");
    }
  }
}

void WarnOfNoBase(const JsonObject& dict, std::vector<std::string>* warnings) {
  if (dict.Find("rope_theta") != nullptr) return;
  Warn(warnings, dict, "rope_theta",
       " is absent, and transformers' class has no default for it in an entry "
       "that is given: it fails");
}

bool HasRotaryKey(const JsonObject& config) {
  for (const std::string& key : config.Keys()) {
    if (absl::StartsWith(key, "rope") || absl::StartsWith(key, "rotary") ||
        absl::EndsWith(key, "_rope_theta") || key == "partial_rotary_factor" ||
        key == "qk_rope_head_dim" || key == "rotary_emb_base" ||
        key == "use_rope") {
      return true;
    }
    const json& value = *config.Find(key);
    if (absl::StartsWith(key, "position_embedding") &&
        (value == "rotary" || value == "rope")) {
      return true;
    }
    if (key == "attn_config" && value.is_object() &&
        value.contains("rope_theta")) {
      return true;
    }
  }
  return false;
}

}  // namespace posenc::core::interpretation
