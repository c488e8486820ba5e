// Sinusoidal position rows: sin and cos of position * w_i (arXiv:1706.03762).
//
//   w_i = base^(-2i/dim), or, with `endpoint`, base^(-i / (n - 1)),
//   n = floor(dim/2), so that the last w is 1/base (tensor2tensor, fairseq)
//
// w_i is evaluated in long double and rounded to float64. Rows are exact for
// |position| <= 2^31, also at fractional and negative positions: float32 values
// are correctly rounded, and float64 values are within 2 ulp (trig_rows.h).

#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/tensor.h"
#include "core/positions/positions.h"

namespace posenc::core {

class TrigRows;

enum class SinusoidalOrder {
  kUnspecified = 0,
  kInterleaved = 1,
  kSinCos = 2,
  kCosSin = 3,
};

struct Sinusoidal {
  std::int32_t dim = 0;
  std::optional<double> base;
  SinusoidalOrder order = SinusoidalOrder::kUnspecified;
  bool endpoint = false;
  std::optional<std::int64_t> padding_position;
  bool odd_dim_sine = false;
};

// Returns FieldInvalid unless 1 < base <= 2^900: with a greater base, the
// lowest frequency cannot be reduced exactly.
absl::Status CheckSinusoidBase(absl::string_view field, double base);
// Returns FieldInvalid ("dim") unless 2 <= dim <= 65536.
absl::Status CheckSinusoidDim(std::int32_t dim);

// Errors: dim < 2 or > 65536, base out of range, order missing, endpoint with
// dim < 4, odd_dim_sine with an order other than interleaved, or with endpoint
// and odd dim.
absl::Status ValidateSinusoidal(const Sinusoidal& encoding);

// Returns the rows of a validated encoding.
TrigRows SinusoidalRows(const Sinusoidal& encoding);

// Fills `table`, which is [rows, dim] and has any floating dtype. Each value is
// rounded once.
absl::Status BuildSinusoidal(const Sinusoidal& encoding,
                             const TokenPositions& positions,
                             const TensorView& table);

}  // namespace posenc::core
