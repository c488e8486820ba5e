// The layers that a configuration distinguishes: their types, and the layers
// without rope.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/interpretation/classes/class_defaults.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/provenance.h"

namespace posenc::core::interpretation {

// The language model's part of a configuration, its class, and its reader.
struct Model {
  const JsonObject& config;
  const std::string& model_type;  // as ModelKey() spells it
  const Family& family;
  const ProfileRules& rules;
  const ClassDefaults* defaults;  // may be null

  // Returns the reader's row with this rule for the model; null if no row
  // applies.
  const ReadingRow* Row(ReadingRule rule) const {
    return FindReadingRow(rules.profile, rules.version, model_type, rule);
  }
  bool is_hf() const { return rules.profile == Profile::kHf; }
  bool by_class() const { return ReadsByClass(rules); }
  // Returns the name of the reader's class for messages.
  std::string Class() const { return ClassOf(model_type, rules.project); }
  Report& report() const { return config.report(); }
};

// Returns layer_types with transformers' newer names; empty if the key is
// absent.
std::vector<std::string> LayerTypes(const JsonObject& config);

// Returns transformers' newer name of a layer type.
std::string Renamed(std::string type);

// True for a layer type that transformers knows, by its newer name.
bool IsTransformersType(absl::string_view type);

// True if a dict's key may be a layer type of this model.
bool IsLayerType(const Model& model, absl::string_view key);

// True if classes of the family mark layers without rope in no_rope_layers.
bool HasLayerList(const Family& family);

// Returns the number of layers that the file or its class gives; nullopt if
// neither gives it.
std::optional<std::int64_t> LayerCount(const Model& model);

// Reports an error if the model has no layer with this index.
void CheckLayerIndex(const JsonObject& config, std::int32_t index);

// Returns the type of a layer; empty if the configuration does not give it.
std::string TypeOfLayer(const Model& model, std::int64_t index);

// Returns the head_dim that per_layer_config gives all layers of a type. If
// layers of one type differ, this is an error, as in transformers.
std::optional<Value> LayerHeadDim(const Model& model,
                                  absl::string_view layer_type);

// Returns the value of the key Family::rope_switch as JSON, or the class's
// default if the key is absent. For a boolean switch, null counts as false.
std::string SwitchValue(const Model& model);

// True if the class's switch turns rotation off.
bool IsSwitchedOff(const Model& model);

// True if the file says that the chosen layer has no attention, or that it has
// only cross-attention. Such layers have no rope in any class.
bool HasNoSelfAttention(const Model& model, const Question& question);

// True if the chosen layer has no rope for a reason other than the class's
// switch. Reports FieldRequired if layers differ and no layer is chosen.
bool IsNopeLayer(const Model& model, const Question& question);

// True if the class reads the list rope_scaling_layers and the chosen layer is
// not in that list. Reports FieldRequired if some layers are not in the list
// and no layer is chosen.
bool IsUnscaledLayer(const Model& model,
                     const std::optional<std::int32_t>& index);

// Returns the base of a layer in layer_rope_theta; nullopt without such a list.
std::optional<double> LayerTheta(const JsonObject& config,
                                 const std::optional<std::int32_t>& index);

}  // namespace posenc::core::interpretation
