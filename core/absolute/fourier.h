// Fourier features: sines, then cosines, of 2 pi x B for the position x, [axes]
// (arXiv:2006.10739).
//
// x B counts full circles, so no product with 2 pi is needed. B's elements are
// not rounded (|B| <= 2^18), the products of the axes are summed without
// rounding, and rows have the accuracy of trig_rows.h.

#pragma once

#include "absl/status/status.h"
#include "core/absolute/encoding.h"
#include "core/absolute/trig_rows.h"

namespace posenc::core {

// Errors: frequencies that are missing, not floating, or not [axes, dim / 2]
// with both > 0; an element that is not finite or beyond 2^18.
absl::Status ValidateFourier(const FourierFeatures& encoding);

// Returns the rows of a validated encoding.
TrigRows FourierRows(const FourierFeatures& encoding);

}  // namespace posenc::core
