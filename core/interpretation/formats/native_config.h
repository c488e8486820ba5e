// Configurations in the formats of the reference implementations: Mistral's
// params.json, gpt-oss's and Step 3.5's own, and Megatron-LM's arguments.

#pragma once

#include <string>

#include "core/interpretation/classes/reading_rules.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

// A configuration in the spelling of transformers. `given` maps its keys to the
// file's own keys, where they differ, with full paths.
struct Respelled {        // NOLINT(bugprone-exception-escape)
  nlohmann::json config;  // null if the file needs no respelling
  GivenKeys given;
};

// The formats of Mistral and Megatron have one meaning for all readers, so the
// format sets the reader.
Respelled InTransformersSpelling(const JsonObject& config,
                                 const std::string& model_type,
                                 ProfileVersion* reader);

}  // namespace posenc::core::interpretation
