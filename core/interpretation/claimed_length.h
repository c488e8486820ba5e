// How many positions a model claims to serve.

#pragma once

#include <cstdint>

#include "core/interpretation/source.h"

namespace posenc::core {

// max_position_embeddings, or what takes its place, of a preset's or a given
// configuration's language model; 0 if it claims nothing, as a spec does.
std::int64_t ClaimedLength(const RopeSource& source);

}  // namespace posenc::core
