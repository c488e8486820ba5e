// Compares a preset with the defaults that its class has for a file without
// rotary keys.

#pragma once

#include <optional>

#include "core/interpretation/source.h"

namespace posenc::core::interpretation {

// Returns an assumption of field "preset" that tells how the preset differs
// from transformers' default for its model type; nullopt if it does not differ,
// the source is not a preset, or the profile is not kHf.
std::optional<Assumption> DifferenceFromDefault(const RopeSource& source,
                                                const ResolvedRope& rope);

}  // namespace posenc::core::interpretation
