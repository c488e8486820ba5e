// CheckLayerEntries() and WarnOfLayerEntries() of known_keys.h, for
// per_layer_config.

#include <map>

#include "absl/strings/numbers.h"
#include "core/interpretation/classes/known_keys.h"
#include "core/interpretation/classes/profile.h"

namespace posenc::core::interpretation {
namespace {

constexpr char kEntries[] = "per_layer_config";

// The keys to which Family::entries_by_type applies.
constexpr char kReadByType[] = "head_dim qk_rope_head_dim qk_nope_head_dim";

constexpr char kRotary[] =
    "head_dim rope_parameters rope_scaling rope_theta partial_rotary_factor "
    "max_position_embeddings original_max_position_embeddings "
    "qk_rope_head_dim qk_nope_head_dim num_hidden_layers layer_types";
// If no key gives the width of a head, the width follows from these keys.
constexpr char kWidths[] = "hidden_size num_attention_heads";

bool IsForAllLayers(const Model& model, absl::string_view key) {
  if (model.family.entries_by_type && IsAmong(key, kReadByType)) {
    return false;
  }
  const bool has_width =
      model.config.Has("head_dim") || model.family.head_dim > 0;
  return IsAmong(key, kRotary) || (IsAmong(key, kWidths) && !has_width);
}

// Warns if the slices of a latent head do not add up to its head_dim. Returns
// true if there is a warning.
bool WarnOfSlices(const JsonObject& config, const JsonObject& entries) {
  const JsonObject none(nullptr, "", &config.report());
  const auto differs = [&](const JsonObject& entry, const JsonObject& told,
                           absl::string_view key, absl::string_view has) {
    const auto own = [&](absl::string_view name) {
      const auto value = entry.Peek().Integer(name);
      return value ? value : config.Peek().Integer(name);
    };
    const auto head = own("head_dim");
    const auto rope = own("qk_rope_head_dim");
    const auto rest = own("qk_nope_head_dim");
    if (!head || !rope || !rest || *head == *rope + *rest) return false;
    told.Warn(key, has, "head_dim is ", *head, ", and qk_nope_head_dim ", *rest,
              " + qk_rope_head_dim ", *rope,
              " is another width; transformers refuses that");
    return true;
  };
  if (config.At(kEntries).is_null()) {
    return differs(none, config, kEntries, " is null: ");
  }
  for (const std::string& key : entries.Keys()) {
    if (differs(entries.Peek().Object(key), entries, key, ": ")) return true;
  }
  return false;
}

// Warns if layers with latent attention rotate slices of different widths,
// because posenc reads only the model's own width. Without per_layer_config,
// the class takes the width of sliding layers from keys that begin with swa_.
void WarnOfOtherSlices(const Model& model, const JsonObject& entries) {
  constexpr absl::string_view kSlice = "qk_rope_head_dim";
  const JsonObject config = model.config.Peek();
  const std::int64_t own = config.Integer(kSlice).value_or(0);
  std::int64_t other = own;
  for (const std::string& key : entries.Keys()) {
    const auto slice = entries.Peek().Object(key).Integer(kSlice);
    if (slice && *slice != own) other = *slice;
  }
  if (!config.Contains(kEntries)) {
    // 192 and 256 are the class's defaults.
    const std::int64_t rest =
        config.Integer("swa_qk_nope_head_dim").value_or(192);
    const std::int64_t head = config.Integer("swa_head_dim").value_or(256);
    other = config.Integer("swa_qk_rope_head_dim").value_or(head - rest);
  }
  if (other == own) return;
  config.Warn(kSlice, " is ", own, ", and ", ClassOf(model.model_type),
              " turns ", other, " channels in layers of another type; ", own,
              " are read for every layer");
}

// Warns if transformers refuses an entry. Returns false if transformers accepts
// the entry.
bool WarnOfEntry(const Model& model, const JsonObject& entries,
                 const std::string& key) {
  const std::optional<std::int64_t> layers = LayerCount(model);
  std::int64_t index = 0;
  if (layers && (!absl::SimpleAtoi(key, &index) || index >= *layers)) {
    entries.Warn(key, " is of no layer: num_hidden_layers is ", *layers,
                 ", and layers count from 0; transformers refuses that, and it "
                 "is ignored");
    return true;
  }
  if (entries.At(key).is_null()) {
    entries.Warn(key, " is null, and transformers fails on it; it is ignored");
    return true;
  }
  const JsonObject entry = entries.Peek().Object(key);
  for (const std::string& name : entry.Keys()) {
    if (!IsForAllLayers(model, name)) continue;
    const bool is_absent = !model.config.Contains(name);
    const json& whole = model.config.At(name);
    if (!is_absent && whole == entry.At(name)) continue;
    entry.Warn(name, " is ", Shortened(entry.At(name)), ", and ",
               model.config.Path(name), " is ",
               is_absent ? "absent" : Shortened(whole), "; ",
               ClassOf(model.model_type),
               " reads one value for all layers and refuses entries that "
               "differ: the model's is used");
    return true;
  }
  return false;
}

// Warns of layers of one type with different entries. transformers looks up one
// entry for each type, and refuses different entries.
void WarnOfTypesThatDiffer(const Model& model, const JsonObject& entries) {
  const std::vector<std::string> types = LayerTypes(model.config);
  std::map<std::size_t, std::string> keys;
  for (const std::string& key : entries.Keys()) {
    std::size_t index = 0;
    if (absl::SimpleAtoi(key, &index)) keys[index] = key;
  }
  // Returns the keys of an entry whose values differ from the model's own
  // values.
  const auto differing = [&](std::size_t index) {
    json entry = json::object();
    const auto it = keys.find(index);
    if (it == keys.end() || !entries.At(it->second).is_object()) return entry;
    for (const auto& [name, value] : entries.At(it->second).items()) {
      const bool is_same =
          model.config.Contains(name) && model.config.At(name) == value;
      if (!is_same) entry[name] = value;
    }
    return entry;
  };
  std::map<std::string, std::size_t> first;
  for (std::size_t index = 0; index < types.size(); ++index) {
    const auto [it, is_new] = first.emplace(types[index], index);
    if (is_new || differing(index) == differing(it->second)) continue;
    model.config.Warn(kEntries, " gives layers ", it->second, " and ", index,
                      ", both of type ", types[index], ", different keys; ",
                      ClassOf(model.model_type),
                      " takes one entry for each type and refuses that; "
                      "head_dim is read");
    return;
  }
}

}  // namespace

void CheckLayerEntries(const JsonObject& entries) {
  for (const std::string& key : entries.Keys()) {
    if (key.empty() ||
        key.find_first_not_of("0123456789") != std::string::npos) {
      entries.Fail(key, "is no index of a layer");
    }
    entries.Peek().Object(key);
  }
}

void WarnOfLayerEntries(const Model& model) {
  const JsonObject entries = model.config.Peek().Object(kEntries);
  if (model.family.entries_by_type && model.family.width == RotaryWidth::kMla) {
    WarnOfOtherSlices(model, entries);
    if (model.config.Contains(kEntries) &&
        WarnOfSlices(model.config, entries)) {
      return;
    }
  }
  for (const std::string& key : entries.Keys()) {
    if (WarnOfEntry(model, entries, key)) return;
  }
  if (model.family.entries_by_type) WarnOfTypesThatDiffer(model, entries);
}

}  // namespace posenc::core::interpretation
