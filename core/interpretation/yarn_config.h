// Reads YaRN's parameters, about whose attention factor and ramp the projects
// disagree most.

#pragma once

#include "core/interpretation/rope_config.h"

namespace posenc::core::interpretation {

// g(s, m) of the YaRN paper (arXiv:2309.00071): 0.1 m ln s + 1, or 1 for s
// <= 1. Factor on cos and sin, and squared on scores.
long double YarnMscale(double factor, double mscale);

// Sets spec.scaling and the softmax multiplier.
void ReadYarn(const RopeDict& from, ModelRope* rope);

}  // namespace posenc::core::interpretation
