// Checks of a configuration's known keys, whether or not their values are
// needed.

#pragma once

#include "absl/strings/string_view.h"
#include "core/interpretation/class_defaults.h"
#include "core/interpretation/layers.h"

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

// Nulls of a dict that transformers takes for values, and fails at.
void WarnOfNulls(const JsonObject& dict);

// An entry without rope_theta, in a class that has no default for it.
void WarnOfNoBase(const JsonObject& dict);

// True if a key says something about rotation.
bool HasRotaryKey(const JsonObject& config);

}  // namespace posenc::core::interpretation
