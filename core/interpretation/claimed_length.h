// The number of positions that a model claims to serve.

#pragma once

#include <cstdint>

#include "core/interpretation/source.h"

namespace posenc::core::interpretation {

class JsonObject;

// Returns max_position_embeddings, or the key in its place, of the language
// model in a preset or configuration; 0 if the source claims no length, as a
// spec does.
std::int64_t ClaimedLength(const RopeSource& source);
// Returns the same for a parsed configuration.
std::int64_t ClaimedLength(const JsonObject& root);

}  // namespace posenc::core::interpretation
