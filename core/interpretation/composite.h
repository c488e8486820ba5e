// The part of a configuration that describes its language model.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/interpretation/json_object.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {

// The language model's part of a composite configuration, which may be nested
// more than once. An encoder and a decoder give the decoder; a configuration
// without a language model gives the first part that rotates. model_type
// becomes the part's own, or the one that its parents imply.
JsonObject LanguagePart(JsonObject config, std::string* model_type);

// Adds the values that transformers' composite classes put into a text_config
// that lacks them, and returns their keys.
std::vector<std::string> AddParentsDefaults(nlohmann::json* root);

// Checks a file around its language model as transformers does: it refuses
// unknown types, fills an absent part from its class, and reads rotary keys
// only in the part.
void WarnOfFile(const nlohmann::json& root, Report* report);

}  // namespace posenc::core::interpretation
