// Fourier features: sines, then cosines, of 2 pi x B (arXiv:2006.10739).
//
// Exact: x B counts turns, so that 2 pi is never multiplied by; B's elements
// are taken as they are (|B| <= 2^18), the axes' products summed without
// rounding, and rows are as exact as trig_rows.h says.

#pragma once

#include "absl/status/status.h"
#include "core/absolute/encoding.h"
#include "core/absolute/trig_rows.h"

namespace posenc::core {

// frequencies missing, not floating, not [axes, dim / 2] with both > 0, an
// element not finite or beyond 2^18.
absl::Status ValidateFourier(const FourierFeatures& encoding);

// Of a validated encoding.
TrigRows FourierRows(const FourierFeatures& encoding);

}  // namespace posenc::core
