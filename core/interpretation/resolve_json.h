// Resolves configurations that are already parsed.

#pragma once

#include "absl/status/statusor.h"
#include "core/interpretation/config.h"
#include "core/interpretation/source.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {

// Does the same as ReadModelConfig() for the value that ParseText() returns.
absl::StatusOr<ModelRope> ReadModelJson(const nlohmann::json& root,
                                        const Question& question);

// Does the same as ResolveSource() for a parsed text. `how` gives the reader,
// layer, part and length. `how.source` is not read.
absl::StatusOr<ResolvedRope> ResolveJson(const nlohmann::json& root,
                                         const RopeSource& how,
                                         MissingLength missing_length);

}  // namespace posenc::core::interpretation
