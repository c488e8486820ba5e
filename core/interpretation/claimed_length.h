// The number of positions that a model claims to serve.

#pragma once

#include <cstdint>

#include "core/interpretation/source.h"

namespace posenc::core::interpretation {

class JsonObject;

// Returns the max_position_embeddings of the language model in a preset or
// configuration. Some models have another name for this key, such as
// n_positions. Returns 0 if the source claims no length. A spec never claims a
// length.
std::int64_t ClaimedLength(const RopeSource& source);
// Returns the length that a parsed configuration claims.
std::int64_t ClaimedLength(const JsonObject& root);

}  // namespace posenc::core::interpretation
