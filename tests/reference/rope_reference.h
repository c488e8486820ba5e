// Rotary frequencies and angles from the formulas in rope.proto, in __float128:
// an oracle that shares no code with core/.

#pragma once

#include <quadmath.h>

#include <cstdint>
#include <vector>

#include "core/rope/spec.h"

namespace posenc::reference {

using Quad = __float128;

// The scaled frequencies of `spec`, whose rotary_dim and rope_theta (or
// axis_thetas) are set; other defaults are as in rope.proto. `length` is the
// sequence length, for the scalings that have one.
std::vector<Quad> InvFreq(const core::RopeSpec& spec, std::int64_t length);

// Attention factor that the scaling of `spec` implies.
Quad Amplitude(const core::RopeSpec& spec, std::int64_t length);

// Untruncated ends of YaRN's ramp: the pair that makes `turns` full rotations
// within the original length.
Quad YarnPairWithTurns(std::int32_t rotary_dim, double theta,
                       std::int64_t original, double turns);

// cos and sin of position * frequency; the product of two float64 is exact.
Quad Cos(double position, double frequency);
Quad Sin(double position, double frequency);

// Distance of `actual` from `exact` in units of the last place of float64 at
// exact.
double UlpError(double actual, Quad exact);

}  // namespace posenc::reference
