// Checks of a configuration's known keys, whether or not their values are
// needed.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "core/interpretation/classes/class_defaults.h"
#include "core/interpretation/classes/layers.h"

namespace posenc::core::interpretation {

// A known key of the wrong type is an error.
void CheckKnownKeys(const JsonObject& config);

// The same for a dict of rotary parameters.
void CheckRopeKeys(const JsonObject& dict);

// Warns of values that transformers' configuration classes refuse and that this
// reader does not need: nulls and fractions in place of integers, lists of
// layers that do not fit, heads that do not divide the width. `defaults` may be
// null.
void WarnOfRefusals(const ModelLayers& model, const ClassDefaults* defaults);

// Warns of lists by layer that have another length, a mark that is not known,
// or an index of no layer.
void WarnOfLists(const ModelLayers& model);

// Errors and, if `warns`, warnings of the rows of rows/refusals.json for that
// type, about keys that begin with `part`.
void CheckRefusals(const JsonObject& config, absl::string_view model_type,
                   absl::string_view part, bool warns);

// True if a key says something about rotation.
bool HasRotaryKey(const JsonObject& config);

// per_layer_config is what a file gives single layers, by their index. A key
// that is no index, or an entry that is no object, is an error.
void CheckLayerEntries(const JsonObject& entries);

// Entries that transformers refuses: of layers that the model, which has
// `layers` if that is known, does not have; null; with a rotary key that the
// class reads once for all layers; and, in classes that read entries by the
// type of layer, entries of one type that differ.
void WarnOfLayerEntries(const ModelLayers& model,
                        const std::optional<std::int64_t>& layers);

}  // namespace posenc::core::interpretation
