#include "core/model/known_keys.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/model/families.h"
#include "core/model/layer_entries.h"
#include "core/model/profile.h"

namespace posenc::core {
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

// Classes that accept fewer types of layers than that, as files spell them.
struct ClassTypes {
  absl::string_view model_types;  // separated by blanks
  absl::string_view accepted;
};
constexpr ClassTypes kClassTypes[] = {
    {"deepseek_v4",
     "sliding_attention compressed_sparse_attention "
     "heavily_compressed_attention"},
    {"modernbert modernbert_decoder neomme",
     "full_attention sliding_attention"},
    {"olmo_hybrid", "full_attention linear_attention"},
    {"qwen4_exp",
     "full_attention indexed_attention linear_attention "
     "qwen_sparse_attention"}};

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
  for (const ClassTypes& row : kClassTypes) {
    if (!IsAmong(model.model_type, row.model_types)) continue;
    for (const json& type : *list) {
      if (!type.is_string() ||
          IsAmong(type.get_ref<const std::string&>(), row.accepted)) {
        continue;
      }
      warnings->push_back(absl::StrCat(
          model.config.Path("layer_types"), " has ", Shortened(type),
          ", and transformers' class of model_type ", model.model_type,
          " takes ", absl::StrReplaceAll(row.accepted, {{" ", ", "}}),
          " only: it refuses the file"));
      return;
    }
  }
}

// The keys that say which layers have no rope.
void WarnOfNopeKeys(const ModelLayers& model,
                    const std::optional<std::int64_t>& layers,
                    std::vector<std::string>* warnings) {
  const JsonObject& config = model.config;
  if (model.family.nope != NopeRule::kLayerList) return;
  const json* list = config.Find("no_rope_layers");
  const bool is_listed = list != nullptr && list->is_array();
  const json* every = config.Find("no_rope_layer_interval");
  const bool is_llama = absl::StartsWith(model.model_type, "llama4");
  if (every != nullptr && (every->is_null() || *every == 0) &&
      (is_llama || !is_listed)) {
    warnings->push_back(absl::StrCat(
        config.Path("no_rope_layer_interval"), " is ", every->dump(),
        ", by which transformers' class divides, and fails; read as ",
        every->is_null() ? "absent" : "no layer without rope"));
  }
  if (!is_listed) return;
  // Llama 4's class takes an empty list for an absent one.
  if (layers && static_cast<std::int64_t>(list->size()) < *layers &&
      !(is_llama && list->empty())) {
    warnings->push_back(
        absl::StrCat(config.Path("no_rope_layers"), " has ", list->size(),
                     " elements, and num_hidden_layers is ", *layers,
                     "; transformers' class fails at the layers past them"));
  }
  if (!list->empty() && std::all_of(list->begin(), list->end(),
                                    [](const json& one) { return one == 0; })) {
    warnings->push_back(absl::StrCat(
        config.Path("no_rope_layers"),
        " is 0 for every layer, so that none rotates; transformers' class "
        "makes frequencies that no layer takes"));
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
    if (value.is_null() && is_never_null) {
      warnings->push_back(absl::StrCat(
          config.Path(key),
          " is null, for which transformers wants a value; read as absent"));
    }
  }
  const json* type = config.Find("model_type");
  if (type != nullptr && type->is_null()) {
    warnings->push_back(absl::StrCat(
        config.Path("model_type"),
        " is null, with which transformers fails; read as absent"));
  }
  if (IsRemote(model.model_type)) {
    warnings->push_back(absl::StrCat(
        "model_type ", model.model_type,
        " has no class in transformers, which refuses it without the code "
        "beside its checkpoints; it is read as that code does"));
  }
  const json* tuning = config.Find("attn_temperature_tuning");
  if (tuning != nullptr && tuning->is_number()) {
    warnings->push_back(absl::StrCat(
        config.Path("attn_temperature_tuning"), " is ", tuning->dump(),
        ", as first published, for which transformers wants a flag; read as ",
        *tuning == 0 ? "false" : "true"));
  }
  const std::vector<std::string> types = LayerTypes(config);
  auto layers = config.PeekInteger("num_hidden_layers");
  if (!layers && defaults != nullptr && defaults->num_hidden_layers > 0) {
    layers = defaults->num_hidden_layers;
  }
  WarnOfLayerEntries(model, layers, warnings);
  WarnOfNopeKeys(model, layers, warnings);
  const json* list = config.Find("layer_types");
  if (list != nullptr && list->is_array() && layers &&
      *layers != static_cast<std::int64_t>(types.size())) {
    warnings->push_back(absl::StrCat(config.Path("layer_types"), " has ",
                                     types.size(),
                                     " elements, and num_hidden_layers is ",
                                     *layers, "; transformers refuses that"));
  }
  const json* const is_long = config.Find("use_long_context");
  const auto maximum = config.PeekInteger("max_position_embeddings");
  if (model.model_type == "zamba2" && is_long != nullptr &&
      *is_long == json(true) && maximum && *maximum != 16384) {
    warnings->push_back(absl::StrCat(
        config.Path("max_position_embeddings"), " is ", *maximum,
        ", and use_long_context is true, by which transformers' class of "
        "model_type zamba2 takes 16384; so it is read here"));
  }
  const json* thetas = config.Find("layer_rope_theta");
  if (thetas != nullptr && !thetas->is_null() && *thetas != json::array() &&
      !IsAmong(model.model_type,
               "muse_glimmer muse_spark granite_swa granitemoe_swa")) {
    warnings->push_back(absl::StrCat(
        config.Path("layer_rope_theta"), " is ", Shortened(*thetas),
        ", which transformers' class of model_type ", model.model_type,
        " does not read: its layers turn alike; the list is used here"));
  }
  for (const std::string& type : types) {
    if (IsAmong(type, kAccepted)) continue;
    warnings->push_back(absl::StrCat(config.Path("layer_types"), " has \"",
                                     type,
                                     "\", which is no type of layer that "
                                     "transformers knows, and refused there"));
    break;
  }
  WarnOfClassTypes(model, warnings);
  const json* share = config.Find("rotary_pct");
  if (share != nullptr && share->is_null() &&
      IsAmong(model.model_type, "gpt_neox gpt_neox_japanese")) {
    warnings->push_back(
        absl::StrCat(config.Path("rotary_pct"),
                     " is null, with which transformers' class of model_type ",
                     model.model_type, " fails; the whole head is rotated"));
  }
  // Where the layers are listed, one class alone still looks at the pattern.
  const bool is_listed = list != nullptr && !list->is_null();
  const json* pattern = config.Find("sliding_window_pattern");
  if (pattern != nullptr && pattern->is_number() && *pattern < 1 &&
      (!is_listed || model.model_type == "embedding_gemma2")) {
    warnings->push_back(absl::StrCat(
        config.Path("sliding_window_pattern"), " is ", pattern->dump(),
        ", for which transformers' classes want a positive integer; read as "
        "no pattern"));
  }
  if (pattern != nullptr && pattern->is_string() && !is_listed &&
      model.model_type == "exaone4") {
    warnings->push_back(absl::StrCat(
        config.Path("sliding_window_pattern"), " is ", Shortened(*pattern),
        " without layer_types, by which transformers' class divides, and "
        "fails; it is read as a pattern"));
  }
  const json* interval = config.Find("full_attention_interval");
  if (interval != nullptr && *interval == 0 && !is_listed &&
      IsAmong(model.model_type, "qwen3_next qwen3_5 qwen3_5_moe qwen4_exp")) {
    warnings->push_back(absl::StrCat(
        config.Path("full_attention_interval"),
        " is 0, by which transformers' class divides, and fails; ignored"));
  }
  if (list != nullptr &&
      IsAmong(model.model_type, "bamba falcon_h1 recurrent_gemma")) {
    warnings->push_back(absl::StrCat(
        config.Path("layer_types"),
        " is given, which transformers' class of model_type ", model.model_type,
        " computes, and fails at in a file; it is read"));
  }
  const json* other_width = config.Find("n_embed");
  if (model.model_type == "falcon" && other_width != nullptr &&
      !other_width->is_null()) {
    const json* width = config.Find("hidden_size");
    if (width == nullptr || *width != *other_width) {
      warnings->push_back(absl::StrCat(
          config.Path("n_embed"), " is ", Shortened(*other_width),
          ", which transformers' class of model_type falcon takes for "
          "hidden_size, or refuses; hidden_size is read"));
    }
  }
  const json* attention = config.Find("attn_config");
  if (model.model_type == "mpt" && attention != nullptr &&
      attention->is_object() && attention->value("rope", json()) == true) {
    warnings->push_back(absl::StrCat(
        config.Path("attn_config.rope"),
        " is true, which the code beside the checkpoint reads; transformers' "
        "class of model_type mpt has ALiBi only, and it is read so: no rope"));
  }
  if (model.model_type == "falcon" && config.Find("head_dim") != nullptr) {
    warnings->push_back(absl::StrCat(
        config.Path("head_dim"),
        " is given, which transformers' class of model_type falcon computes "
        "and refuses in a file; it is hidden_size / num_attention_heads"));
  }
  const auto hidden = config.PeekInteger("hidden_size");
  const auto heads = config.PeekInteger("num_attention_heads");
  if (hidden && heads && *heads > 0 && *hidden % *heads != 0 &&
      defaults != nullptr && defaults->divided) {
    warnings->push_back(
        absl::StrCat(config.Path("hidden_size"), " is ", *hidden,
                     ", and num_attention_heads ", *heads,
                     " does not divide it; transformers refuses that"));
  }
}

void WarnOfNulls(const JsonObject& dict, std::vector<std::string>* warnings) {
  for (const std::string& key : dict.Keys()) {
    if (dict.Find(key)->is_null() && IsAmong(key, kNeverNullInDicts)) {
      warnings->push_back(absl::StrCat(
          dict.Path(key),
          " is null, with which transformers fails; read as absent"));
    }
  }
}

void WarnOfNoBase(const JsonObject& dict, std::vector<std::string>* warnings) {
  if (dict.Find("rope_theta") != nullptr) return;
  warnings->push_back(absl::StrCat(
      dict.Path("rope_theta"),
      " is absent, and transformers' class has no default for it in an entry "
      "that is given: it fails"));
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

}  // namespace posenc::core
