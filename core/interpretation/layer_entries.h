// per_layer_config: what a file gives single layers, by their index.

#pragma once

#include <cstdint>
#include <optional>

#include "core/interpretation/layers.h"

namespace posenc::core::interpretation {

// A key that is no index, or an entry that is no object, is an error.
void CheckLayerEntries(const JsonObject& entries);

// Entries that transformers refuses: of layers that the model, which has
// `layers` if that is known, does not have; null; with a rotary key that the
// class reads once for all layers; and, in classes that read entries by the
// type of layer, entries of one type that differ.
void WarnOfLayerEntries(const ModelLayers& model,
                        const std::optional<std::int64_t>& layers);

}  // namespace posenc::core::interpretation
