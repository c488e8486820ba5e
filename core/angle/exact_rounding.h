// Rounds cosines and sines to float32 where float64 is not precise enough.
//
// The last bits of a float64 result may be wrong. If the error interval of a
// result contains a number halfway between two floats, rounding may give the
// wrong float. This happened to 2 of 2 * 10^9 values of published encodings.
// RoundExactly evaluates such results again, with twice as many bits.

#pragma once

#include <cstddef>

#include "core/simd/kernels.h"

namespace posenc::core {

struct RoundedCosSin {
  float cos, sin;
};

// Returns the floats nearest to factor * cos(phi) and factor * sin(phi) of pair
// i of the row; kernels.h defines phi. The floats are right unless an exact
// value is closer to the middle of two floats than the larger of two bounds:
// 2^-85 of the value, and 2^-90 + 2^-93 |phi| / (pi / 2) of the factor. The
// second bound comes from the reduction of large angles
// (angle/quarter_turns.h). The sign of a sine of 0 is unspecified.
RoundedCosSin RoundExactly(const simd::TrigRow& row, std::size_t i);

// Corrects the rounding of a row's float32 values, which is needed only if
// KernelTable::trig_row_f32 has returned true.
void RoundExactly(const simd::TrigRow& row, float* cos, float* sin);

}  // namespace posenc::core
