// Checks of a configuration's known keys, including those whose values are not
// needed.

#pragma once

#include "absl/strings/string_view.h"
#include "core/interpretation/classes/layers.h"

namespace posenc::core::interpretation {

// Reports an error if the value of a known key has the wrong type.
void CheckKnownKeys(const JsonObject& config);

// Reports an error if the value of a known key in a dict of rotary parameters
// has the wrong type.
void CheckRopeKeys(const JsonObject& dict);

// Warns of values that transformers' configuration classes refuse or do not
// read. Such values are nulls in place of numbers, unknown layer types,
// switches of other classes, and a number of heads that does not divide the
// width.
void WarnOfRefusals(const Model& model);

// Warns if a list that has one element for each layer has the wrong length or
// an unknown element. Also warns if rope_scaling_layers has the index of a
// layer that does not exist.
void WarnOfLists(const Model& model);

// Applies the rows of rows/refusals.json for `model_type` to keys that begin
// with `part`. Reports errors and, if `warns`, warnings.
void CheckRefusals(const JsonObject& config, absl::string_view model_type,
                   absl::string_view part, bool warns);

// True if a key says something about rotation.
bool HasRotaryKey(const JsonObject& config);

// Checks per_layer_config, which gives values to single layers by their index.
// A key that is not an index, or an entry that is not an object, is an error.
void CheckLayerEntries(const JsonObject& entries);

// Warns of entries of per_layer_config that transformers refuses. An entry is
// refused if the model has no such layer, if it is null, or if it gives
// another value to a rotary key that the class reads once for all layers. If
// the class reads entries by layer type, layers of one type with different
// entries are refused, too. Also warns of widths of sliding layers that are not
// read.
void WarnOfLayerEntries(const Model& model);

}  // namespace posenc::core::interpretation
