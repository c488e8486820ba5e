// Checks of each kind of absolute encoding, and the rows of the kinds that have
// sines and cosines.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/absolute/encoding.h"
#include "core/absolute/trig_rows.h"

namespace posenc::core {

// Return the extents of an encoding, or the error of a field. The field's path
// is relative to the encoding's message.
absl::StatusOr<AbsoluteExtents> Validate(const Sinusoidal& encoding);
absl::StatusOr<AbsoluteExtents> Validate(const LearnedTable& encoding);
absl::StatusOr<AbsoluteExtents> Validate(const SincosGrid& encoding);
absl::StatusOr<AbsoluteExtents> Validate(const Timestep& encoding);
absl::StatusOr<AbsoluteExtents> Validate(const FourierFeatures& encoding);

// Return the rows of a validated encoding. Frequencies of Sinusoidal and
// Timestep are evaluated in long double and rounded to float64.
TrigRows RowsOf(const Sinusoidal& encoding);
TrigRows RowsOf(const Timestep& encoding);
TrigRows RowsOf(const FourierFeatures& encoding);

// Returns FieldInvalid for a base outside 1 < base <= 2^900, because with a
// greater base the lowest frequency cannot be reduced exactly.
absl::Status CheckSinusoidBase(const std::optional<double>& base);
// Returns FieldInvalid ("dim") unless 2 <= dim <= 65536.
absl::Status CheckSinusoidDim(std::int32_t dim);

}  // namespace posenc::core
