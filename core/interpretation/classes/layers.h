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

// The language model's part of a configuration, and what its class is.
struct ModelLayers {
  const JsonObject& config;
  const std::string& model_type;
  const Family& family;
};

// layer_types, in transformers' newer names; empty if it is absent.
std::vector<std::string> LayerTypes(const JsonObject& config);

// True for a type of layer that transformers knows, in its newer name.
bool IsTransformersType(absl::string_view type);

// True for what may be a type of layer of this model, as a key of a dict.
bool IsLayerType(const ModelLayers& model, absl::string_view key);

// True if no_rope_layers marks the layers without rope.
bool HasLayerList(const Family& family);

// The number of layers that the file or its class says; nullopt if none does.
std::optional<std::int64_t> LayerCount(const ModelLayers& model);

// Error if the model has no layer of that index.
void CheckLayerIndex(const JsonObject& config, std::int32_t index);

// The type of a layer; empty if the configuration does not say.
std::string TypeOfLayer(const ModelLayers& model, std::int64_t index);

// The head_dim that per_layer_config gives all layers of a type. Layers of a
// type that differ are an error, as they are in transformers.
std::optional<Value> LayerHeadDim(const ModelLayers& model,
                                  absl::string_view layer_type);

// The value of Family::rope_switch as JSON: the class's own where the key is
// absent. Null is none, and false for a switch that is true or false.
std::string SwitchValue(const ModelLayers& model);

// True if the class's switch turns rotation off.
bool IsSwitchedOff(const ModelLayers& model);

// True if the chosen layer has no rope, of a class that is not switched off.
// The error is FieldRequired if layers differ and none is chosen.
bool IsNopeLayer(const ModelLayers& model, const Question& question);

// True for a layer that rope_scaling_layers leaves out, of a class that reads
// it. The error is FieldRequired if it leaves some out, and no layer is chosen.
bool IsUnscaledLayer(const ModelLayers& model,
                     const std::optional<std::int32_t>& index);

// The base that layer_rope_theta gives a layer.
std::optional<double> LayerTheta(const JsonObject& config,
                                 const std::optional<std::int32_t>& index);

}  // namespace posenc::core::interpretation
