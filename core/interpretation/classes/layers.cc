#include "core/interpretation/classes/layers.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/interpretation/classes/profile.h"

namespace posenc::core::interpretation {
namespace {

// The types of layers that transformers 5.24 knows.
constexpr char kLayerTypes[] =
    "full_attention sliding_attention chunked_attention window_attention "
    "indexed_attention compressed_sparse_attention "
    "heavily_compressed_attention minimax_m3_sparse conv moe hybrid "
    "hybrid_sliding reference_sliding_attention linear_attention";

// Pairs of names of a layer type: the name before transformers 5, and the newer
// name.
constexpr std::pair<absl::string_view, absl::string_view> kRenamed[] = {
    {"attention", "full_attention"},
    {"mamba", "linear_attention"},
    {"deepseek_sparse_attention", "indexed_attention"},
    {"qwen_sparse_attention", "indexed_attention"}};

// Upper bound on the layers that a loop visits, to bound the time. No model has
// so many layers.
constexpr std::int64_t kMostLayers = 1024;

// Cohere 2 MoE's key for the pattern of its dense layers.
constexpr absl::string_view kDensePattern =
    "prefix_dense_sliding_window_pattern";

// Returns the type that Family::layer_pattern gives a layer.
std::string PatternType(absl::string_view pattern, std::int64_t index,
                        const std::string& full, const std::string& other) {
  const std::size_t bar = pattern.find('|');
  const bool has_first = bar != absl::string_view::npos;
  const absl::string_view first = pattern.substr(0, has_first ? bar : 0);
  const absl::string_view repeated = pattern.substr(has_first ? bar + 1 : 0);
  const auto before = static_cast<std::int64_t>(first.size());
  const auto size = static_cast<std::int64_t>(repeated.size());
  switch (index < before ? first[index] : repeated[(index - before) % size]) {
    case 'F':
      return full;
    case 'S':
      return other;
    case 'L':
      return "linear_attention";
    case 'C':
      return "conv";
    default:
      return "hybrid";
  }
}

// Returns the type of a layer from a list in the file. Such a list has an
// element for each layer, or the indices of the layers with attention. Returns
// "" if the list has no element for the layer, and nullopt if the file has no
// such list. `full` and `other` are the names of the family's two kinds of
// layers.
std::optional<std::string> ListedType(const Model& model, std::int64_t index,
                                      const std::string& full,
                                      const std::string& other) {
  const JsonObject& config = model.config;
  const auto list = [&config](absl::string_view key) {
    const json& value = config.At(key);
    // Only LFM2's class reads an empty list; other classes ignore it.
    const bool is_list =
        value.is_array() && (!value.empty() || key == "full_attn_idxs");
    return is_list ? &value : nullptr;
  };
  const auto i = static_cast<std::size_t>(index);
  for (const absl::string_view key : {"attn_layer_indices", "full_attn_idxs"}) {
    const json* with = list(key);
    if (with == nullptr) continue;
    return std::count(with->begin(), with->end(), index) > 0
               ? "full_attention"
               : "linear_attention";
  }
  if (const json* blocks = list("layers_block_type")) {
    return i < blocks->size() && blocks->at(i).is_string()
               ? Renamed(blocks->at(i).get<std::string>())
               : "";
  }
  if (const json* blocks = list("block_types")) {
    return blocks->at(i % blocks->size()) == "recurrent" ? "linear_attention"
                                                         : "sliding_attention";
  }
  // MiniMax marks layers with full attention with 1, and MiMo marks sliding
  // layers with 1. DeepSeek V4 marks compressed layers with their ratio, and
  // UltraBERT's first checkpoints mark sliding layers with their window.
  // transformers' class of MiniMax does not read MiniMax's list, but the code
  // that is stored with the checkpoints reads it.
  if (const json* marks = list("attn_type_list");
      marks != nullptr && model.family.remote) {
    if (i >= marks->size()) return "";
    return marks->at(i) == 0 ? "linear_attention" : "full_attention";
  }
  for (const absl::string_view key :
       {"hybrid_layer_pattern", "compress_ratios", "attention_windows"}) {
    const std::vector<double> marks = config.Numbers(key);
    if (marks.empty()) continue;
    if (i >= marks.size()) return "";
    const bool is_other =
        key == "hybrid_layer_pattern" ? marks[i] == 1 : marks[i] != 0;
    return is_other ? other : full;
  }
  return std::nullopt;
}

// Reports the error that the caller must choose a layer. Returns false.
bool NeedsLayer(const JsonObject& config, absl::string_view field,
                absl::string_view why) {
  config.report().Refuse(FieldRequired(field, why));
  return false;
}

// Returns a layer's element of a list that has one element for each layer.
double MarkOfLayer(const JsonObject& config, absl::string_view key,
                   const std::vector<double>& marks, std::int32_t index) {
  CheckLayerIndex(config, index);
  if (index >= 0 && index < static_cast<std::int64_t>(marks.size())) {
    return marks[index];
  }
  config.report().Refuse(FieldInvalid(
      "layer_index",
      absl::StrCat(index, "; ", key, " has ", marks.size(), " layers")));
  return 0;
}

// True if no_rope_layers, or the rule "every n-th layer", leaves the chosen
// layer without rope.
bool IsNopeByList(const Model& model, const Question& question) {
  const auto& [config, model_type, family, rules, defaults] = model;
  const auto& layer_type = question.layer_type;
  const auto& index = question.layer_index;
  const std::vector<double> has_rope = config.Numbers("no_rope_layers");
  // Only one class treats an empty list as absent. Other classes fail at an
  // empty list.
  const bool has_list =
      !has_rope.empty() ||
      (family.nope == NopeRule::kLayerList && config.Has("no_rope_layers"));
  if (has_list && index) {
    return MarkOfLayer(config, "no_rope_layers", has_rope, *index) == 0;
  }
  if (has_list && std::count(has_rope.begin(), has_rope.end(), 0) == 0) {
    return false;
  }
  // The class derives layer types from no_rope_layers only if the file has no
  // layer_types and no null attention_chunk_size.
  const bool says_type = layer_type && family.nope == NopeRule::kChunkedList &&
                         !config.Has("layer_types") &&
                         !config.HasNull("attention_chunk_size");
  if (says_type && *layer_type == "chunked_attention") return false;
  if (says_type && *layer_type == "full_attention") return true;
  if (!index) {
    return NeedsLayer(config, "layer_index",
                      "some of the model's layers have no rope "
                      "(no_rope_layers); choose one by its index");
  }
  const std::int64_t every =
      config.Integer("no_rope_layer_interval").value_or(family.full_every);
  return every != 0 && (*index + 1) % every == 0;
}

// True if the base that OLMo Hybrid's class reads is null.
bool HasNullBase(const JsonObject& config) {
  for (const absl::string_view key : {"rope_scaling", "rope_parameters"}) {
    const json& dict = config.At(key);
    if (!dict.is_object() || dict.empty()) continue;
    if (dict.contains("rope_theta")) return dict["rope_theta"].is_null();
    break;
  }
  return config.HasNull("rope_theta");
}

// True for a dense layer of Cohere 2 MoE that rotates without a window.
bool IsTurningDense(const JsonObject& config, std::int64_t index) {
  if (config.Integer(kDensePattern).value_or(1) != 1) return false;
  const json& list = config.At("mlp_layer_types");
  if (!list.is_array()) {
    return index < config.Integer("first_k_dense_replace").value_or(0);
  }
  return index < static_cast<std::int64_t>(list.size()) &&
         list.at(static_cast<std::size_t>(index)) == "dense";
}

// True if the chosen layer has no rope, in a class in which only layers with a
// sliding window rotate.
bool IsNopeWithoutWindow(const Model& model, const Question& question) {
  const auto& [config, model_type, family, rules, defaults] = model;
  const auto& layer_type = question.layer_type;
  const auto& index = question.layer_index;
  const bool has_dense = family.nope == NopeRule::kWindowedOrDense;
  if (has_dense && index && IsTurningDense(config, *index)) return false;
  const std::int64_t layers =
      std::min(LayerCount(model).value_or(0), kMostLayers);
  for (std::int64_t i = 0; has_dense && !index && i < layers; ++i) {
    if (!IsTurningDense(config, i)) continue;
    return NeedsLayer(config, "layer_index",
                      "dense layers of full attention rotate, and layers of "
                      "experts do not; choose one by its index");
  }
  // Without a sliding layer, vLLM rotates every layer.
  const json& types = config.At("layer_types");
  if (rules.profile == Profile::kVllm &&
      family.nope == NopeRule::kFullAttention && types.is_array() &&
      std::count(types.begin(), types.end(), "sliding_attention") == 0) {
    return false;
  }
  // transformers' classes have a window unless sliding_window is null in the
  // file.
  if (config.HasNull("sliding_window")) {
    if (family.nope == NopeRule::kFullAttention) return false;
    if (family.nope == NopeRule::kWindowed) return true;
  }
  if (layer_type || index) {
    const std::string type =
        layer_type ? *layer_type : TypeOfLayer(model, *index);
    const bool has_window = type.empty() || type == "sliding_attention";
    return !has_window || (has_dense && config.HasNull("sliding_window"));
  }
  return NeedsLayer(config, "layer_type",
                    "the model's layers differ: full_attention has no rope, "
                    "sliding_attention has; choose one, or a layer_index");
}

// True if layer_rope_theta gives the chosen layer the base 0, which means no
// rope.
bool IsNopeByBase(const JsonObject& config, const std::vector<double>& thetas,
                  const std::optional<std::int32_t>& index) {
  if (index) {
    return MarkOfLayer(config, "layer_rope_theta", thetas, *index) == 0;
  }
  if (std::count(thetas.begin(), thetas.end(), thetas[0]) ==
      static_cast<std::ptrdiff_t>(thetas.size())) {
    return thetas[0] == 0;
  }
  return NeedsLayer(config, "layer_index",
                    "the model's layers differ by their base "
                    "(layer_rope_theta); choose one by its index");
}

}  // namespace

std::string Renamed(std::string type) {
  for (const auto& [before, since] : kRenamed) {
    if (type == before) return std::string(since);
  }
  return type;
}

std::vector<std::string> LayerTypes(const JsonObject& config) {
  // The bound limits the work, because each type may have its own encoding. No
  // model has ten types.
  constexpr std::size_t kMostTypes = 64;
  std::vector<std::string> types;
  std::set<std::string> different;
  const json& list = config.At("layer_types");
  if (list.is_null()) return types;
  if (!list.is_array()) {
    config.Fail("layer_types", "is of type ", list.type_name(), ", ",
                Shortened(list), "; it must be an array of strings");
    return types;
  }
  for (const json& type : list) {
    if (!type.is_string()) {
      config.Fail("layer_types", "has an element of type ", type.type_name(),
                  ", ", Shortened(type), "; it must be an array of strings");
      return types;
    }
    types.push_back(Renamed(type.get<std::string>()));
    different.insert(types.back());
    if (different.size() > kMostTypes) {
      config.Fail("layer_types", "has more than ", kMostTypes,
                  " different types");
      return types;
    }
  }
  return types;
}

bool IsTransformersType(absl::string_view type) {
  return IsAmong(type, kLayerTypes);
}

bool HasLayerList(const Family& family) {
  return family.nope == NopeRule::kLayerList ||
         family.nope == NopeRule::kChunkedList;
}

bool IsLayerType(const Model& model, absl::string_view key) {
  // DeepSeek V4's dict has entries for two kinds of attention, not for layer
  // types.
  if (IsTransformersType(key) || IsAmong(key, "main compress")) return true;
  for (const LayerKind& kind : model.family.kinds) {
    if (!kind.type.empty() && kind.type == key) return true;
  }
  const std::vector<std::string> types = LayerTypes(model.config);
  return std::count(types.begin(), types.end(), key) > 0;
}

std::optional<std::int64_t> LayerCount(const Model& model) {
  const auto layers = model.config.FirstInteger(kLayersNames);
  if (layers) return layers;
  if (model.defaults == nullptr || model.defaults->num_hidden_layers == 0) {
    return std::nullopt;
  }
  return model.defaults->num_hidden_layers;
}

void CheckLayerIndex(const JsonObject& config, std::int32_t index) {
  const auto listed = static_cast<std::int64_t>(LayerTypes(config).size());
  std::optional<std::int64_t> layers = config.FirstInteger(kLayersNames);
  if (!layers && listed > 0) layers = listed;
  std::string fact;
  if (index < 0 || (layers && index >= *layers)) {
    fact = layers ? absl::StrCat("the model has ", *layers, " layers, from 0")
                  : "layers count from 0";
  } else if (listed > 0 && index >= listed) {
    fact = absl::StrCat("layer_types has ", listed, " layers");
  } else {
    return;
  }
  config.report().Refuse(
      FieldInvalid("layer_index", absl::StrCat(index, "; ", fact)));
}

// Projects mark the type of a layer in four ways: a list of types, a list of
// marks or indices, a pattern of letters, and "every n-th".
std::string TypeOfLayer(const Model& model, std::int64_t index) {
  const auto& [config, model_type, family, rules, defaults] = model;
  const std::vector<std::string> types = LayerTypes(config);
  const std::string full = family.kinds[0].type.empty()
                               ? "full_attention"
                               : std::string(family.kinds[0].type);
  const std::string other = family.kinds[1].type.empty()
                                ? "sliding_attention"
                                : std::string(family.kinds[1].type);
  const bool lacks_full =
      family.full_once &&
      family.layer_pattern.find('F') > static_cast<std::size_t>(index);
  const bool ends_full = family.full_last || lacks_full;
  if ((family.forces_last || (ends_full && types.empty())) &&
      LayerCount(model) == index + 1) {
    return full;
  }
  if (index < static_cast<std::int64_t>(types.size())) {
    // DeepSeek V4 has one kind for layers with a window, and another kind for
    // all layers that compress.
    if (full != "main" || types[index] == "compress") return types[index];
    return types[index] == "sliding_attention" ? full : other;
  }
  if (auto listed = ListedType(model, index, full, other)) return *listed;
  const json& slides = config.At(family.sliding_switch);
  if (config.Contains(family.sliding_switch) &&
      (slides.is_null() || slides == false || slides == 0)) {
    return full;
  }
  std::int64_t every = 0;  // -3 also means every third layer, as in Python
  const absl::string_view key = config.FirstOf(family.interval_keys);
  if (!key.empty()) {
    const json& value = config.At(key);
    if (value.is_string()) {  // EXAONE: "LLLG"
      const std::string pattern = value.get<std::string>();
      if (pattern.empty()) return "";
      return pattern[index % pattern.size()] == 'G' ? full : other;
    }
    every = config.Integer(key).value_or(0);
  }
  if (every == 0 && !family.layer_pattern.empty()) {
    return PatternType(family.layer_pattern, index, full, other);
  }
  if (every == 0) every = family.full_every;
  if (family.nope == NopeRule::kWindowedOrDense) {
    // Dense layers come first. The layers of experts follow, and are counted
    // from 0 again.
    const std::int64_t dense =
        config.Integer("first_k_dense_replace").value_or(0);
    if (index < dense) {
      every = config.Integer(kDensePattern).value_or(1);
    } else {
      index -= dense;
    }
  }
  if (every == 0) return "";
  const bool is_full =
      family.full_first ? index % every == 0 : (index + 1) % every == 0;
  if (is_full) return full;
  return family.layer_pattern.empty() ? other : "linear_attention";
}

std::optional<Value> LayerHeadDim(const Model& model,
                                  absl::string_view layer_type) {
  const JsonObject& config = model.config;
  const JsonObject entries = config.Object("per_layer_config");
  std::vector<std::string> types = LayerTypes(config);
  // Without a list of types, the family's rule "every n-th layer" applies.
  if (types.empty() && !entries.Keys().empty() && model.family.full_every > 0) {
    const std::int64_t layers = config.Integer("num_hidden_layers").value_or(0);
    for (std::int64_t i = 0; i < std::min(layers, kMostLayers); ++i) {
      types.push_back(TypeOfLayer(model, i));
    }
  }
  std::optional<Value> found;
  std::string first;
  auto lacking = std::count(types.begin(), types.end(), layer_type);
  for (const std::string& key : entries.Keys()) {
    std::size_t index = 0;
    if (!absl::SimpleAtoi(key, &index) || index >= types.size()) continue;
    if (types[index] != layer_type) continue;
    const auto head_dim = IntegerAt(entries.Object(key), "head_dim");
    if (!head_dim) continue;
    --lacking;
    if (found && found->value != head_dim->value) {
      entries.Fail(absl::StrCat(key, ".head_dim"), "is ", head_dim->text,
                   ", and ", first, ".head_dim ", found->text,
                   "; layers of type ", layer_type, " must have one width");
      return found;
    }
    found = head_dim;
    first = key;
  }
  if (found && lacking > 0) {
    entries.Fail(absl::StrCat(first, ".head_dim"), "is ", found->text, ", and ",
                 lacking, " other layers of type ", layer_type,
                 " have none; they must have one width");
  }
  return found;
}

bool IsUnscaledLayer(const Model& model,
                     const std::optional<std::int32_t>& index) {
  const JsonObject& config = model.config;
  if (!model.family.scaling_layers || !config.Has("rope_scaling_layers")) {
    return false;
  }
  const std::vector<double> scaled = config.Numbers("rope_scaling_layers");
  if (index) return std::count(scaled.begin(), scaled.end(), *index) == 0;
  const std::int64_t layers = LayerCount(model).value_or(0);
  const auto count =
      std::count_if(scaled.begin(), scaled.end(), [layers](double one) {
        return one >= 0 && one < static_cast<double>(layers);
      });
  if (count < layers) {
    return NeedsLayer(
        config, "layer_index",
        absl::StrCat("rope_scaling_layers scales ", count, " of the model's ",
                     layers, " layers; choose one by its index"));
  }
  return false;
}

std::optional<double> LayerTheta(
    const JsonObject& config, const std::optional<std::int32_t>& layer_index) {
  const std::vector<double> thetas = config.Numbers("layer_rope_theta");
  if (thetas.empty()) return std::nullopt;
  const std::size_t index = layer_index.value_or(0);
  return index < thetas.size() ? thetas[index] : thetas[0];
}

std::string SwitchValue(const Model& model) {
  const auto& [config, model_type, family, rules, defaults] = model;
  config.MarkRead(family.rope_switch);
  if (!config.Contains(family.rope_switch)) {
    return std::string(family.rope_switch_absent);
  }
  if (!IsAmong(family.rope_switch_value, "true false")) {
    return config.At(family.rope_switch).dump();
  }
  return config.Flag(family.rope_switch).value_or(false) ? "true" : "false";
}

bool IsSwitchedOff(const Model& model) {
  return !model.family.rope_switch.empty() &&
         SwitchValue(model) != model.family.rope_switch_value;
}

bool HasNoSelfAttention(const Model& model, const Question& question) {
  const auto& [config, model_type, family, rules, defaults] = model;
  const std::int32_t index = question.layer_index.value_or(-1);
  const bool has_no_attention =
      family.layer_pattern == "L" && LayerTypes(config).empty() &&
      !ListedType(model, 0, "full_attention", "sliding_attention");
  if (has_no_attention) {
    config.Assume(
        "layer_types", index < 0 ? "" : "linear_attention",
        absl::StrCat("absent: then no layer of ", ClassOf(model_type),
                     " has attention",
                     index < 0 ? "; read as a layer with attention" : ""));
  }
  if (index < 0) {
    return IsAmong(question.layer_type.value_or(""), "conv linear_attention");
  }
  const json& cross = config.At("cross_attention_layers");
  const bool is_cross = cross.is_array()
                            ? std::count(cross.begin(), cross.end(), index) > 0
                            : IsAmong(absl::StrCat(index), family.cross_layers);
  return is_cross ||
         IsAmong(TypeOfLayer(model, index), "conv linear_attention");
}

// Classes mark layers without rope in many ways. The common ways are tried
// first.
bool IsNopeLayer(const Model& model, const Question& question) {
  const auto& [config, model_type, family, rules, defaults] = model;
  const auto& layer_index = question.layer_index;
  config.MarkRead("position_embedding_type");
  if (config.At("position_embedding_type") == "nope") return true;
  if (family.nope == NopeRule::kEveryLayer) return true;
  const std::vector<double> thetas = config.Numbers("layer_rope_theta");
  if (!thetas.empty()) return IsNopeByBase(config, thetas, layer_index);
  if (family.nope == NopeRule::kNone) return false;
  if (family.nope == NopeRule::kNoLength) {
    return !config.Has("max_position_embeddings");
  }
  if (family.nope == NopeRule::kNullBase) return HasNullBase(config);
  if (layer_index) CheckLayerIndex(config, *layer_index);
  if (!config.report().ok()) return false;
  if (HasLayerList(family)) {
    return IsNopeByList(model, question);
  }
  if (family.nope == NopeRule::kFromLast) {
    const auto layers = config.Integer("num_hidden_layers");
    if (!layers || !layer_index) {
      return NeedsLayer(config, "layer_index",
                        "the last layer of the model and every fourth before "
                        "it have no rope; choose one by its index (the "
                        "configuration must have num_hidden_layers)");
    }
    return (*layers - 1 - *layer_index) % family.full_every == 0;
  }
  return IsNopeWithoutWindow(model, question);
}

}  // namespace posenc::core::interpretation
