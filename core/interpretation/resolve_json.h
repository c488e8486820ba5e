// Configurations that are parsed already.

#pragma once

#include "absl/status/statusor.h"
#include "core/interpretation/config.h"
#include "core/interpretation/source.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {

// ReadModelConfig() of a parsed text, as ParseText() returns it.
absl::StatusOr<ModelRope> ReadModelJson(const nlohmann::json& root,
                                        const Question& question);

// ResolveSource() of a parsed text. `how` says the reader, layer, part and
// length; its source is not read.
absl::StatusOr<ResolvedRope> ResolveJson(const nlohmann::json& root,
                                         const RopeSource& how,
                                         MissingLength missing_length);

}  // namespace posenc::core::interpretation
