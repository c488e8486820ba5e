// Rounds cosines and sines to float32 where float64 is not precise enough.
//
// A float64 result is off by some of its last bits. If its error interval
// contains a number halfway between two floats, rounding may give the wrong
// float: this happened to 2 of 2 * 10^9 values of published encodings. This
// code evaluates such values again, with twice the bits.

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

// Corrects the kernel's rounding of a row, if the kernel says that this may be
// needed (KernelTable::trig_row_f32).
void RoundExactly(const simd::TrigRow& row, float* cos, float* sin);

}  // namespace posenc::core
