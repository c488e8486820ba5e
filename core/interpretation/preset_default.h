// Where a preset is not what its class would make of a file that says nothing
// about its rotation.

#pragma once

#include <optional>

#include "core/interpretation/source.h"

namespace posenc::core::interpretation {

// An assumption of field "preset" that says how the preset differs from
// transformers' default for its model type. Nothing if it does not, for sources
// that are no presets, and under other profiles than kHf.
std::optional<Assumption> DifferenceFromDefault(const RopeSource& source,
                                                const ResolvedRope& rope);

}  // namespace posenc::core::interpretation
