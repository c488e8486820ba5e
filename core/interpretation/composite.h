// The part of a configuration that describes its language model.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/interpretation/json_object.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {

// The language model's part of a composite configuration, which may be nested
// more than once. Of an encoder and a decoder this is the decoder; of a
// configuration without a language model, the first part that rotates.
// model_type becomes the part's own, or the one that its parents imply.
JsonObject LanguagePart(JsonObject config, std::string* model_type);

// Adds the values that transformers' composite classes put into a text_config
// that lacks them, and returns their keys.
std::vector<std::string> AddParentsDefaults(nlohmann::json* root);

// What transformers makes of a file around its language model: it refuses types
// that it does not know, takes an absent part for its class's own, and reads
// rotary keys nowhere but in the part.
void WarnOfFile(const nlohmann::json& root, Report* report);

}  // namespace posenc::core::interpretation
