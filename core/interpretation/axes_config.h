// Reads the position axes of a rope dict: M-RoPE's sections.

#pragma once

#include "core/interpretation/rope_config.h"

namespace posenc::core::interpretation {

// Sets spec->axes: the dict's sections, or else the class's. rotary_dim is read
// before. Sections that cannot be are an error.
void ReadAxes(const RopeDict& from, RopeSpec* spec);

}  // namespace posenc::core::interpretation
