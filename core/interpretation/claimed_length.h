// How many positions a model claims to serve.

#pragma once

#include <cstdint>

#include "core/interpretation/source.h"

namespace posenc::core::interpretation {

class JsonObject;

// max_position_embeddings, or what takes its place, of a preset's or a given
// configuration's language model; 0 if it claims nothing, as a spec does.
std::int64_t ClaimedLength(const RopeSource& source);
// The same of a configuration that is parsed.
std::int64_t ClaimedLength(const JsonObject& root);

}  // namespace posenc::core::interpretation
