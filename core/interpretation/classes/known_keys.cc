#include "core/interpretation/classes/known_keys.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/error.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/profile.h"

namespace posenc::core::interpretation {
namespace {

// Keys by the type of their values. A null value counts as an absent key
// everywhere.
constexpr char kIntegers[] =
    "hidden_size num_hidden_layers num_attention_heads "
    "max_position_embeddings head_dim global_head_dim n_embd n_head n_layer "
    "n_positions qk_rope_head_dim qk_nope_head_dim "
    "sliding_window rotary_dim rotary_embedding_base full_attention_interval "
    "layer_group_size global_attn_every_n_layers no_rope_layer_interval "
    "index_head_dim indexer_head_dim";
constexpr char kNumbers[] =
    "partial_rotary_factor rotary_pct rotary_emb_base rope_local_base_freq "
    "global_rope_theta local_rope_theta rope_local_theta swa_rope_theta "
    "original_max_position_embeddings";

constexpr char kDictNumbers[] =
    "rope_theta factor beta_fast beta_slow mscale mscale_all_dim "
    "attention_factor low_freq_factor high_freq_factor "
    "original_max_position_embeddings partial_rotary_factor";

// Keys for which transformers' classes refuse null. A class also refuses a null
// head_dim if it has a default for head_dim.
constexpr char kNeverNull[] =
    "rope_theta original_max_position_embeddings hidden_size n_embd "
    "num_attention_heads n_head num_hidden_layers max_position_embeddings "
    "n_positions global_head_dim qk_rope_head_dim kv_channels rotary_dim "
    "rotary_embedding_base";

// Integer keys that are sizes.
constexpr char kSizes[] =
    "hidden_size num_hidden_layers num_attention_heads head_dim "
    "max_position_embeddings";

// Kinds of values that transformers' classes refuse, or do not read.
enum class RefusedValue {
  kGiven,
  kAbsent,  // the object has no such key
  kNull,
  kEmpty,
  kNotFalse,  // neither false nor null
  kNotTrue,   // neither true nor null
  kZero,
  kNotPositive,
  kNumber,
  kPoint,  // a number written with a point
  kText,
  kNope,        // "nope"
  kNoRotation,  // the name of another encoding
  kList,
  kFilled,     // neither null nor an empty list
  kFractions,  // a list that has a number with a point
  kIndices,    // a list that has a number other than 0 and 1
  kZeros,      // a list that has nothing but 0
  kDiffers     // differs from the value of the key `without`
};

struct Refusal {
  absl::string_view model_types;  // separated by blanks; empty: all
  absl::string_view key;          // may be in an object: "attn_config.rope"
  RefusedValue when;
  absl::string_view without;  // only in files without this key; empty: in any
  bool fails;                 // posenc refuses the file, too
  bool unread;                // only for classes that do not read the key
  // {} stands for the model type, and {class} for the name of the class.
  absl::string_view says;
};
constexpr Refusal kRefusals[] = {
#include "refusals.inc"
};

void CheckTypes(const JsonObject& object, absl::string_view key) {
  if (IsAmong(key, kIntegers)) {
    const auto value = object.Peek().Integer(key);
    if (value && *value < 1 && IsAmong(key, kSizes)) {
      object.Fail(key, "is ", *value, "; it must be at least 1");
    }
  } else if (IsAmong(key, kNumbers)) {
    object.Peek().Number(key);
  } else if (IsAmong(key,
                     "model_type position_embedding_type "
                     "position_embeddings_type")) {
    object.Peek().Text(key);
  } else if (IsAmong(key,
                     "rope_scaling rope_parameters per_layer_config "
                     "attn_config")) {
    object.Peek().Object(key);
    if (key == "per_layer_config") CheckLayerEntries(object.Peek().Object(key));
  } else if (key == "layer_types") {
    LayerTypes(object);
  } else if (IsAmong(key, "attn_layer_indices full_attn_idxs")) {
    object.Peek().Numbers(key);
  } else if (IsAmong(key, "layers_block_type block_types")) {
    const json& list = object.At(key);
    bool is_list = list.is_array() || list.is_null();
    for (const json& text : list) is_list = is_list && text.is_string();
    if (!is_list) object.Fail(key, "must be an array of strings");
  }
}

// Warns of layer types that transformers does not know, or that the class does
// not have.
void WarnOfTypes(const Model& model) {
  constexpr absl::string_view kKey = "layer_types";
  const auto& [config, model_type, family, rules, defaults] = model;
  const std::vector<std::string> types = LayerTypes(config);
  if (types.empty()) return;
  const auto strange =
      std::find_if_not(types.begin(), types.end(), IsTransformersType);
  if (strange != types.end()) {
    config.Warn(kKey, " has \"", *strange,
                "\"; transformers knows no such type of layer and refuses it");
  }
  // family.layer_types has the spelling of files, so the file's own spelling is
  // compared.
  for (const json& type : config.At(kKey)) {
    if (family.layer_types.empty() || !type.is_string() ||
        IsAmong(type.get_ref<const std::string&>(), family.layer_types)) {
      continue;
    }
    config.Warn(kKey, " has ", Shortened(type), ", and ", ClassOf(model_type),
                " takes ",
                absl::StrReplaceAll(family.layer_types, {{" ", ", "}}),
                " only: it refuses the file");
    break;
  }
  if (std::count(types.begin(), types.end(), "sliding_attention") > 0 &&
      config.Contains("sliding_window") &&
      config.At("sliding_window").is_null()) {
    config.Warn("sliding_window",
                " is null, and transformers' cache of layers of type "
                "sliding_attention wants a number and fails");
  }
  if (family.forces_last && types.back() != "full_attention") {
    config.Warn(kKey, " ends in \"", types.back(), "\"; ", ClassOf(model_type),
                " makes the last layer one of full_attention; it is read the "
                "same way here");
  }
}

// Returns the object that has a row's key, and the key's name in that object;
// nullopt if the configuration has no such object.
std::optional<std::pair<JsonObject, absl::string_view>> PlaceOf(
    const JsonObject& config, absl::string_view key) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(key, absl::MaxSplits('.', 1));
  if (parts.second.empty()) return std::pair(config, key);
  if (!config.At(parts.first).is_object()) return std::nullopt;
  return std::pair(config.Peek().Object(parts.first), parts.second);
}

bool IsRefused(const json& value, RefusedValue when) {
  const auto has = [&value](bool (*is_one)(const json&)) {
    return value.is_array() && std::any_of(value.begin(), value.end(), is_one);
  };
  switch (when) {
    case RefusedValue::kGiven:
      return true;
    case RefusedValue::kAbsent:
    case RefusedValue::kDiffers:
      return false;
    case RefusedValue::kNull:
      return value.is_null();
    case RefusedValue::kEmpty:
      return value == json::object();
    case RefusedValue::kNotFalse:
      return !value.is_null() && value != false;
    case RefusedValue::kNotTrue:
      return !value.is_null() && value != true;
    case RefusedValue::kZero:
      return value == 0;
    case RefusedValue::kNotPositive:
      return value.is_number() && value < 1;
    case RefusedValue::kNumber:
      return value.is_number();
    case RefusedValue::kPoint:
      return value.is_number_float();
    case RefusedValue::kText:
      return value.is_string();
    case RefusedValue::kNope:
      return value == "nope";
    case RefusedValue::kNoRotation:
      return value.is_string() && IsAmong(value.get_ref<const std::string&>(),
                                          "alibi learned none sinusoidal");
    case RefusedValue::kList:
      return value.is_array();
    case RefusedValue::kFilled:
      return !value.is_null() && value != json::array();
    case RefusedValue::kFractions:
      return has([](const json& one) { return one.is_number_float(); });
    case RefusedValue::kIndices:
      return has([](const json& one) {
        return one.is_number() && one != 0 && one != 1;
      });
    case RefusedValue::kZeros:
      return has([](const json& one) { return one == 0; }) &&
             !has([](const json& one) { return one != 0; });
  }
  return false;
}

// True if the family's classes read a key that other classes do not read.
bool Reads(const Family& family, absl::string_view key) {
  if (key == "no_rope_layers") return family.nope != NopeRule::kNone;
  if (key == "layer_rope_theta") {
    return family.layer_bases || family.nope == NopeRule::kFromLast;
  }
  return key == family.rope_switch || family.nope == NopeRule::kEveryLayer;
}

// True if the row applies to the file.
bool IsMet(const Refusal& row, const JsonObject& config,
           const JsonObject& object, absl::string_view name) {
  const json& value = object.At(name);
  const json& other = config.At(row.without);
  if (row.when == RefusedValue::kDiffers) {
    return !value.is_null() && other != value;
  }
  if (!other.is_null()) return false;
  if (row.when == RefusedValue::kAbsent) return !object.Contains(name);
  return object.Contains(name) && IsRefused(value, row.when);
}

// Warns of an interval that the class cannot divide by, and of intervals that
// the class does not read.
void WarnOfIntervals(const Model& model) {
  const auto& [config, model_type, family, rules, defaults] = model;
  const bool differ = family.full_every > 0 || !family.layer_pattern.empty();
  if (!differ || !LayerTypes(config).empty()) return;
  for (const absl::string_view key : absl::StrSplit(kIntervalNames, ' ')) {
    const json& value = config.At(key);
    const bool is_read = IsAmong(key, family.interval_keys);
    if (!is_read && !value.is_null() && value != family.full_every) {
      config.Warn(key, " is ", Shortened(value), ", which ",
                  ClassOf(model_type), " does not read");
    } else if (is_read && config.Contains(key) &&
               (value.is_null() || value == 0 || value.is_string())) {
      config.Warn(
          key, " is ", Shortened(value),
          ", and transformers' class divides by it and fails; ",
          value.is_string() ? "it is read as a pattern" : "read as absent");
    }
  }
}

// Names that files use for encodings without rotation.
constexpr char kOtherEncodings[] =
    "absolute alibi learned none nope relative relative_key sinusoidal";

// Warns if the class's switch has a text that the class does not know.
void WarnOfSwitch(const Model& model) {
  const auto& [config, model_type, family, rules, defaults] = model;
  const json& own = config.At(family.rope_switch);
  if (own.is_string() && IsSwitchedOff(model) &&
      !IsAmong(own.get_ref<const std::string&>(), kOtherEncodings)) {
    config.Warn(family.rope_switch, " is ", Shortened(own), ", and ",
                ClassOf(model_type), " rotates for ", family.rope_switch_value,
                " alone: no layer rotates");
  }
}

// Upper bound on the elements of a list that are checked, to limit the time. A
// list has one element for each layer, and no model has so many layers.
constexpr std::size_t kMostMarks = 1024;

// Warns if hybrid_layer_pattern, which only other readers use, differs from the
// layer types of transformers' class.
void WarnOfPattern(const Model& model) {
  constexpr absl::string_view kKey = "hybrid_layer_pattern";
  const auto& [config, model_type, family, rules, defaults] = model;
  const std::vector<double> marks = config.Peek().Numbers(kKey);
  if (family.layer_pattern.empty() || !LayerTypes(config).empty()) return;
  const JsonObject none(nullptr, "", &config.report());
  for (std::size_t i = 0; i < std::min(marks.size(), kMostMarks); ++i) {
    const absl::string_view type =
        marks[i] == 1 ? "sliding_attention" : "full_attention";
    const std::string theirs =
        TypeOfLayer({none, model_type, family, rules, defaults},
                    static_cast<std::int64_t>(i));
    if (type == theirs) continue;
    config.Warn(kKey, " makes layer ", i, " one of ", type, ", and ",
                ClassOf(model_type),
                " does not read the list: there the layer is one of ", theirs,
                "; the list is read here");
    return;
  }
}

}  // namespace

void CheckRefusals(const JsonObject& config, absl::string_view model_type,
                   absl::string_view part, bool warns) {
  const Family& family = FindFamily(model_type);
  const std::string name_of_class = !family.known() || IsRemote(model_type)
                                        ? "the class that is known here"
                                        : ClassOf(model_type);
  absl::string_view said;
  for (const Refusal& row : kRefusals) {
    const bool is_theirs =
        row.unread
            ? !Reads(family, row.key)
            : row.model_types.empty() || IsAmong(model_type, row.model_types);
    const bool is_said = row.key == said && row.when == RefusedValue::kNumber;
    if (is_said || !is_theirs || (!row.fails && !warns) ||
        !absl::StartsWith(row.key, part)) {
      continue;
    }
    const auto place = PlaceOf(config, row.key);
    if (!place || !IsMet(row, config, place->first, place->second)) continue;
    said = row.key;
    const auto& [object, name] = *place;
    const std::string fact = absl::StrCat(
        "is ",
        row.when == RefusedValue::kGiven    ? "given"
        : row.when == RefusedValue::kAbsent ? "absent"
                                            : Shortened(object.At(name)),
        absl::StrReplaceAll(row.says, {{"{}", std::string(model_type)},
                                       {"{class}", name_of_class}}));
    if (row.fails) {
      object.Fail(name, fact);
    } else {
      object.Warn(name, " ", fact);
    }
  }
}

void CheckKnownKeys(const JsonObject& config) {
  for (const std::string& key : config.Keys()) CheckTypes(config, key);
}

void CheckRopeKeys(const JsonObject& dict) {
  for (const std::string& key : dict.Keys()) {
    if (IsAmong(key, kDictNumbers)) {
      dict.Peek().Number(key);
    } else if (IsAmong(key, "rope_type type")) {
      dict.Peek().Text(key);
    } else if (IsAmong(key, "short_factor long_factor mrope_section")) {
      dict.Peek().Numbers(key);
    }
  }
}

void WarnOfLists(const Model& model) {
  const auto& [config, model_type, family, rules, defaults] = model;
  const std::optional<std::int64_t> layers = LayerCount(model);
  const bool is_chunked = family.nope == NopeRule::kChunkedList;
  const bool has_types = !LayerTypes(config).empty();
  struct List {
    absl::string_view key;
    bool is_read;
    absl::string_view marks = {};  // separated by blanks; empty: any
    absl::string_view otherwise = {};
  };
  const List lists[] = {
      {"layer_types", true},
      {"no_rope_layers", HasLayerList(family)},
      {"layer_rope_theta", Reads(family, "layer_rope_theta")},
      {"mlp_layer_types", family.nope == NopeRule::kWindowedOrDense,
       "dense sparse", "transformers refuses it, and it is read as sparse"},
      {"hybrid_layer_pattern", true, "0 1", "it is read as 0"},
      {"compress_ratios", !has_types && !family.remote, "0 4 128",
       "transformers fails on it, and it is read as a layer that compresses"}};
  for (const auto& [key, is_read, marks, otherwise] : lists) {
    const json& list = config.At(key);
    if (!is_read || list.is_null()) continue;
    if (!list.is_array()) {
      if (key == "mlp_layer_types") {
        config.Warn(key, " is ", Shortened(list),
                    ", which is no list: ", otherwise);
      }
      continue;
    }
    const std::size_t told = marks.empty() ? 0 : kMostMarks;
    for (std::size_t i = 0; i < std::min(list.size(), told); ++i) {
      const json& mark = list[i];
      const std::string text = mark.is_number() ? NumberText(mark.get<double>())
                               : mark.is_string() ? mark.get<std::string>()
                                                  : mark.dump();
      if (IsAmong(text, marks)) continue;
      config.Warn(key, " has ", Shortened(mark), ", which is not one of ",
                  absl::StrReplaceAll(marks, {{" ", ", "}}), ": ", otherwise);
      break;
    }
    if (!layers) continue;
    const auto size = static_cast<std::int64_t>(list.size());
    const bool is_types = absl::EndsWith(key, "layer_types");
    // hybrid_layer_pattern and compress_ratios may be longer, because they may
    // also list the layers for multi-token prediction.
    if (size == *layers || (size == 0 && is_chunked && !is_types) ||
        (size > *layers &&
         IsAmong(key, "hybrid_layer_pattern compress_ratios"))) {
      continue;
    }
    config.Warn(
        key, " has ", size, " elements, and num_hidden_layers is ", *layers,
        is_types         ? "; transformers refuses that"
        : size < *layers ? "; transformers' class fails at the layers past them"
        : is_chunked     ? "; transformers' class refuses that"
                         : "; those past the layers are not read");
  }
  if (!layers || !family.scaling_layers) return;
  for (const double index : config.Peek().Numbers("rope_scaling_layers")) {
    if (index >= 0 && index < static_cast<double>(*layers) &&
        index == std::floor(index)) {
      continue;
    }
    config.Warn("rope_scaling_layers", " has ", NumberText(index),
                ", but num_hidden_layers is ", *layers,
                " and layers count from 0: it scales no layer");
    return;
  }
}

void WarnOfRefusals(const Model& model) {
  const JsonObject& config = model.config;
  const ClassDefaults* const defaults = model.defaults;
  for (const std::string& key : config.Keys()) {
    const json& value = config.At(key);
    bool is_base = key == model.family.theta_key;
    for (const LayerKind& kind : model.family.kinds) {
      is_base = is_base || (!kind.type.empty() && kind.theta_key == key);
    }
    const bool is_never_null =
        is_base ||
        (IsAmong(key, kNeverNull) &&
         ClassRow(model.model_type, ReadingRule::kTakesNulls) == nullptr) ||
        (key == "head_dim" && defaults != nullptr && defaults->head_dim > 0) ||
        (key == model.family.indexer_key &&
         model.family.indexer != Pairing::kUnspecified &&
         model.family.indexer_head_dim > 0);
    // For these keys null is a valid value.
    const bool is_switch =
        (model.family.nope == NopeRule::kNullBase && key == "rope_theta") ||
        (model.family.width == RotaryWidth::kRotaryDim && key == "rotary_dim");
    if (value.is_null() && is_never_null && !is_switch) {
      config.Warn(key,
                  " is null, and transformers wants a value; read as absent");
    }
  }
  if (IsRemote(model.model_type)) {
    config.report().Warn(
        "model_type ", model.model_type,
        " has no class in transformers, and transformers refuses it without "
        "the code beside its checkpoints; it is read as that code reads it");
  }
  WarnOfLayerEntries(model);
  WarnOfSwitch(model);
  WarnOfIntervals(model);
  WarnOfPattern(model);
  const bool is_long = !model.family.long_switch.empty() &&
                       config.At(model.family.long_switch) == true;
  const auto maximum = config.Peek().Integer("max_position_embeddings");
  if (is_long && maximum && *maximum != model.family.long_length) {
    config.Warn("max_position_embeddings", " is ", *maximum, ", and ",
                model.family.long_switch, " is true, so ",
                ClassOf(model.model_type), " takes ", model.family.long_length,
                "; it is read the same way here");
  }
  WarnOfTypes(model);
  const auto hidden = config.Peek().Integer("hidden_size");
  const auto heads = config.Peek().Integer("num_attention_heads");
  if (hidden && heads && *heads > 0 && *hidden % *heads != 0 &&
      defaults != nullptr && defaults->divided) {
    config.Warn("hidden_size", " is ", *hidden, ", and num_attention_heads ",
                *heads, " does not divide it; transformers refuses that");
  }
}

bool HasRotaryKey(const JsonObject& config) {
  for (const std::string& key : config.Keys()) {
    if (absl::StartsWith(key, "rope") || absl::StartsWith(key, "rotary") ||
        absl::EndsWith(key, "_rope_theta") || key == "partial_rotary_factor" ||
        key == "qk_rope_head_dim") {
      return true;
    }
    const json& value = config.At(key);
    if (key == "use_rope" && value != false) return true;
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
