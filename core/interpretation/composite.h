// The part of a configuration that describes its language model.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/interpretation/json_object.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {

// Returns the part of a composite configuration that describes the language
// model. Parts may be nested. If the file has an encoder and a decoder, returns
// the decoder. If the file has no language model, returns the first part that
// rotates. `model_type` becomes the type that the part names, or the type that
// the surrounding configuration implies.
JsonObject LanguagePart(JsonObject config, std::string* model_type);

// Adds the values that transformers' composite classes add to a text_config,
// and returns the keys of these values.
std::vector<std::string> AddParentsDefaults(json* root);

// True for a list that has an "mlp" after the attention of each layer, in a
// family whose files have such lists.
bool ListsMlps(const json& layer_types, absl::string_view model_type);

// Warns if transformers would read the keys outside of the language model's
// part in another way than posenc. transformers refuses unknown types, fills in
// an absent part with the defaults of its class, and reads rotary keys only in
// the part.
void WarnOfFile(const json& root, Report* report);

}  // namespace posenc::core::interpretation
