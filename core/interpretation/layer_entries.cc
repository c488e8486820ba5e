#include "core/interpretation/layer_entries.h"

#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/interpretation/profile.h"
#include "core/interpretation/provenance.h"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;

constexpr char kEntries[] = "per_layer_config";

// Classes of transformers 5.23 whose rotary module reads the entry of a type of
// layer.
constexpr char kByType[] =
    "gemma4 gemma4_unified diffusion_gemma embedding_gemma2 dots3_note";
constexpr char kReadByType[] = "head_dim qk_rope_head_dim qk_nope_head_dim";

constexpr char kRotary[] =
    "head_dim rope_parameters rope_scaling rope_theta partial_rotary_factor "
    "max_position_embeddings original_max_position_embeddings "
    "qk_rope_head_dim qk_nope_head_dim num_hidden_layers layer_types";
// The width of a head follows from these if no key has it.
constexpr char kWidths[] = "hidden_size num_attention_heads";

bool IsForAllLayers(const ModelLayers& model, absl::string_view key) {
  if (IsAmong(model.model_type, kByType) && IsAmong(key, kReadByType)) {
    return false;
  }
  const bool has_width =
      model.config.Has("head_dim") || model.family.head_dim > 0;
  return IsAmong(key, kRotary) || (IsAmong(key, kWidths) && !has_width);
}

// Dots 3 checks each layer's slices against its head.
bool WarnOfSlices(const JsonObject& config, const JsonObject& entries,
                  std::vector<std::string>* warnings) {
  const json* given = config.Find(kEntries);
  const auto whole = config.PeekInteger("head_dim");
  const auto turning = config.PeekInteger("qk_rope_head_dim");
  const auto still = config.PeekInteger("qk_nope_head_dim");
  if (given->is_null() && whole && turning && still &&
      *whole != *turning + *still) {
    Warn(warnings, config, kEntries, " is null, and head_dim ", *whole,
         " is not qk_nope_head_dim ", *still, " + qk_rope_head_dim ", *turning,
         "; transformers refuses that for sliding layers");
    return true;
  }
  for (const std::string& key : entries.Keys()) {
    const JsonObject entry = entries.PeekObject(key);
    const auto own = [&](absl::string_view name) {
      const auto value = entry.PeekInteger(name);
      return value ? value : config.PeekInteger(name);
    };
    const auto head = own("head_dim");
    const auto rope = own("qk_rope_head_dim");
    const auto rest = own("qk_nope_head_dim");
    if (!head || !rope || !rest || *head == *rope + *rest) continue;
    Warn(warnings, entries, key, " has a head_dim of ", *head,
         ", and qk_nope_head_dim ", *rest, " + qk_rope_head_dim ", *rope,
         " is another; transformers refuses that");
    return true;
  }
  return false;
}

// What transformers refuses of one entry; empty if it takes it.
std::string RefusalOf(const ModelLayers& model, const JsonObject& entries,
                      const std::string& key,
                      const std::optional<std::int64_t>& layers) {
  std::int64_t index = 0;
  if (layers && (!absl::SimpleAtoi(key, &index) || index >= *layers)) {
    return absl::StrCat(entries.Path(key), " is of no layer of the ", *layers,
                        ", from 0, of num_hidden_layers; transformers "
                        "refuses that, and it is ignored");
  }
  if (entries.Find(key)->is_null()) {
    return absl::StrCat(entries.Path(key),
                        " is null, at which transformers fails; it is ignored");
  }
  const JsonObject entry = entries.PeekObject(key);
  for (const std::string& name : entry.Keys()) {
    if (!IsForAllLayers(model, name)) continue;
    const json* whole = model.config.Find(name);
    if (whole != nullptr && *whole == *entry.Find(name)) continue;
    return absl::StrCat(
        entry.Path(name), " is ", Shortened(*entry.Find(name)), ", and ",
        model.config.Path(name),
        whole == nullptr ? std::string(" is absent")
                         : absl::StrCat(" is ", Shortened(*whole)),
        "; transformers' class of model_type ", model.model_type,
        " reads one value for all layers and refuses entries that differ: the "
        "model's is used");
  }
  return "";
}

// transformers asks for the entry of a type, and refuses two.
void WarnOfTypesThatDiffer(const ModelLayers& model, const JsonObject& entries,
                           std::vector<std::string>* warnings) {
  const std::vector<std::string> types = LayerTypes(model.config);
  std::map<std::size_t, std::string> keys;
  for (const std::string& key : entries.Keys()) {
    std::size_t index = 0;
    if (absl::SimpleAtoi(key, &index)) keys[index] = key;
  }
  // What of an entry differs from the model's own keys.
  const auto differing = [&](std::size_t index) {
    json entry = json::object();
    const auto it = keys.find(index);
    const json* given = it == keys.end() ? nullptr : entries.Find(it->second);
    if (given == nullptr || !given->is_object()) return entry;
    for (const auto& [name, value] : given->items()) {
      const json* whole = model.config.Find(name);
      if (whole == nullptr || *whole != value) entry[name] = value;
    }
    return entry;
  };
  std::map<std::string, std::size_t> first;
  for (std::size_t index = 0; index < types.size(); ++index) {
    const auto [it, is_new] = first.emplace(types[index], index);
    if (is_new || differing(index) == differing(it->second)) continue;
    warnings->push_back(absl::StrCat(
        entries.Path(), " gives layers ", it->second, " and ", index,
        ", both of type ", types[index],
        ", different keys; transformers' class of model_type ",
        model.model_type,
        " takes one entry for each type and refuses that; head_dim is read"));
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
    entries.PeekObject(key);
  }
}

void WarnOfLayerEntries(const ModelLayers& model,
                        const std::optional<std::int64_t>& layers,
                        std::vector<std::string>* warnings) {
  if (model.config.Find(kEntries) == nullptr) return;
  const JsonObject entries = model.config.PeekObject(kEntries);
  if (model.model_type == "dots3_note" &&
      WarnOfSlices(model.config, entries, warnings)) {
    return;
  }
  for (const std::string& key : entries.Keys()) {
    const std::string refusal = RefusalOf(model, entries, key, layers);
    if (refusal.empty()) continue;
    warnings->push_back(refusal);
    return;
  }
  if (IsAmong(model.model_type, kByType)) {
    WarnOfTypesThatDiffer(model, entries, warnings);
  }
}

}  // namespace posenc::core::interpretation
