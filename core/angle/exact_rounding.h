// Cosines and sines that float64 is too narrow to round to float32.
//
// A float64 result is off by some of its last bits. If a number halfway between
// two floats lies among what it may stand for, rounding it may give the wrong
// one of the two: so it was with 2 of 2 * 10^9 values of published encodings.
// Such values are evaluated here with twice the bits.

#pragma once

#include <cstddef>

#include "core/simd/kernels.h"

namespace posenc::core {

struct RoundedCosSin {
  float cos, sin;
};

// The floats nearest to factor * cos(phi) and factor * sin(phi) of pair i of
// the row; kernels.h says what phi is. The exact values may lie as close to
// halfway as the larger of 2^-85 of them and 2^-90 + 2^-93 |phi| / (pi / 2) of
// the factor: for large angles, their reduction decides
// (angle/quarter_turns.h). The sign of a sine of 0 is not told.
RoundedCosSin RoundExactly(const simd::TrigRow& row, std::size_t i);

// Puts right what the kernel has rounded of a row, if it says that this may be
// needed (KernelTable::trig_row_f32).
void RoundExactly(const simd::TrigRow& row, float* cos, float* sin);

}  // namespace posenc::core
