// The kinds of absolute encodings: their checks, and the frequencies of those
// that have sines and cosines.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/absolute/encoding.h"
#include "core/absolute/trig_rows.h"

namespace posenc::core {

// The functions Validate() return the extents of an encoding, or the error of a
// field. The field's path is relative to the encoding's message.

// Errors: dim < 2 or > 65536, base out of range, order missing, endpoint with
// dim < 4, odd_dim_sine with an order other than interleaved, or with endpoint
// and odd dim.
absl::StatusOr<AbsoluteExtents> Validate(const Sinusoidal& encoding);
// Errors: table missing, not floating, not [rows, dim] with both > 0; alpha
// 0.5, or outside (0, 1).
absl::StatusOr<AbsoluteExtents> Validate(const LearnedTable& encoding);
// Errors: dim not divisible by 2 * axes, no extents, an extent < 1, more than
// 2^62 / dim cells, a base that CheckSinusoidBase() refuses, leading_zero_rows
// < 0, more or fewer steps than axes, a step <= 0, or a last cell beyond 2^31.
absl::StatusOr<AbsoluteExtents> Validate(const SincosGrid& encoding);
// Errors: dim outside 2 .. 65536, max_period <= 1, scale 0,
// downscale_freq_shift equal to floor(dim / 2), a number that is not finite,
// frequencies out of range.
absl::StatusOr<AbsoluteExtents> Validate(const Timestep& encoding);
// Errors: frequencies that are missing, not floating, or not [axes, dim / 2]
// with both > 0; an element that is not finite, or whose magnitude is above
// 2^18.
absl::StatusOr<AbsoluteExtents> Validate(const FourierFeatures& encoding);

// Return the rows of a validated encoding. Frequencies of Sinusoidal and
// Timestep are evaluated in long double and rounded to float64.
TrigRows RowsOf(const Sinusoidal& encoding);
TrigRows RowsOf(const Timestep& encoding);
TrigRows RowsOf(const FourierFeatures& encoding);

// Returns FieldInvalid for a base outside 1 < base <= 2^900: with a greater
// base, the lowest frequency cannot be reduced exactly.
absl::Status CheckSinusoidBase(const std::optional<double>& base);
// Returns FieldInvalid ("dim") unless 2 <= dim <= 65536.
absl::Status CheckSinusoidDim(std::int32_t dim);

}  // namespace posenc::core
