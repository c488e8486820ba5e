// Configurations in formats of reference implementations. These formats are
// Mistral's params.json, the config.json of gpt-oss and of Step 3.5, and
// Megatron-LM's arguments.

#pragma once

#include <string>

#include "core/interpretation/classes/reading_rules.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

// A configuration in the spelling of transformers. `given` maps keys of
// `config` to the full paths of the file's own keys, if the two differ.
struct Respelled {  // NOLINT(bugprone-exception-escape)
  json config;      // null if the file needs no respelling
  GivenKeys given;
};

// Converts a file in one of these formats to transformers' spelling. The
// formats of Mistral and Megatron mean the same to every reader, so `reader`
// becomes kMistral for Mistral's format and kHf for Megatron's format.
Respelled InTransformersSpelling(const JsonObject& config,
                                 const std::string& model_type,
                                 ProfileVersion* reader);

}  // namespace posenc::core::interpretation
