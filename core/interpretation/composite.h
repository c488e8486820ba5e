// The part of a configuration that describes its language model.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/interpretation/json_object.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {

// Returns the language model's part of a composite configuration, at any depth.
// If there is an encoder and a decoder, it is the decoder; if there is no
// language model, it is the first part that rotates. model_type becomes the
// part's own type, or the type that its parents imply.
JsonObject LanguagePart(JsonObject config, std::string* model_type);

// Adds the values with which transformers' composite classes complete a
// text_config, and returns their keys.
std::vector<std::string> AddParentsDefaults(nlohmann::json* root);

// Warns where transformers would read the file around the language model in
// another way: it refuses unknown types, fills an absent part from its class,
// and reads rotary keys only in the part.
void WarnOfFile(const nlohmann::json& root, Report* report);

}  // namespace posenc::core::interpretation
