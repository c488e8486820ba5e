// The layers that a configuration distinguishes: their types, and the layers
// without rope.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/provenance.h"

namespace posenc::core::interpretation {

// The language model's part of a configuration, and its class.
struct ModelLayers {
  const JsonObject& config;
  const std::string& model_type;
  const Family& family;
};

// Returns layer_types with transformers' newer names; empty if the key is
// absent.
std::vector<std::string> LayerTypes(const JsonObject& config);

// True for a layer type that transformers knows, by its newer name.
bool IsTransformersType(absl::string_view type);

// True if a dict's key may be a layer type of this model.
bool IsLayerType(const ModelLayers& model, absl::string_view key);

// True if no_rope_layers marks the layers without rope.
bool HasLayerList(const Family& family);

// Returns the number of layers by the file or its class; nullopt if neither has
// it.
std::optional<std::int64_t> LayerCount(const ModelLayers& model);

// Reports an error if the model has no layer with this index.
void CheckLayerIndex(const JsonObject& config, std::int32_t index);

// Returns the type of a layer; empty if the configuration does not tell.
std::string TypeOfLayer(const ModelLayers& model, std::int64_t index);

// Returns the head_dim that per_layer_config gives all layers of a type. If
// layers of one type differ, this is an error, as in transformers.
std::optional<Value> LayerHeadDim(const ModelLayers& model,
                                  absl::string_view layer_type);

// Returns the value of Family::rope_switch as JSON, or the class's default if
// the key is absent. A null is no value; for a boolean switch it is false.
std::string SwitchValue(const ModelLayers& model);

// True if the class's switch turns rotation off.
bool IsSwitchedOff(const ModelLayers& model);

// True if the chosen layer has no rope although the class's switch is on. The
// error is FieldRequired if layers differ and no layer is chosen.
bool IsNopeLayer(const ModelLayers& model, const Question& question);

// True if the class reads rope_scaling_layers and the chosen layer is not in
// it. The error is FieldRequired if some layers are not in it and no layer is
// chosen.
bool IsUnscaledLayer(const ModelLayers& model,
                     const std::optional<std::int32_t>& index);

// Returns the base that layer_rope_theta gives a layer.
std::optional<double> LayerTheta(const JsonObject& config,
                                 const std::optional<std::int32_t>& index);

}  // namespace posenc::core::interpretation
