// Configurations in the formats of the reference implementations: Mistral's
// params.json, gpt-oss's and Step 3.5's own, and Megatron-LM's arguments.

#pragma once

#include <string>

#include "core/interpretation/classes/reading_rules.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

// A configuration in the spelling of transformers, and the file's keys for
// those of its keys that the file has not, all of them in full.
struct Respelled {        // NOLINT(bugprone-exception-escape)
  nlohmann::json config;  // null for a file that need not be respelled
  GivenKeys given;
};

// Mistral's and Megatron's formats mean the same to every reader: they decide
// which is asked.
Respelled InTransformersSpelling(const JsonObject& config,
                                 const std::string& model_type,
                                 ProfileVersion* reader);

}  // namespace posenc::core::interpretation
