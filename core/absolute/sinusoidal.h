// Sinusoidal position rows: sin and cos of position * w_i (arXiv:1706.03762).
//
//   w_i = base^(-2i/dim), or, with `endpoint`, base^(-i / (n - 1)),
//   n = floor(dim/2), so that the last is 1/base (tensor2tensor, fairseq)
//
// Rows are exact: correctly rounded float32 wherever tested, as rope/table.h.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "core/positions.h"
#include "core/tensor.h"

namespace posenc::core {

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

// dim < 2, base <= 1 or not finite, order missing, endpoint with dim < 4,
// odd_dim_sine with another order than interleaved.
absl::Status ValidateSinusoidal(const Sinusoidal& encoding);

// table: [rows, dim], any floating dtype, rounded once.
absl::Status BuildSinusoidal(const Sinusoidal& encoding,
                             const TokenPositions& positions,
                             const TensorView& table);

}  // namespace posenc::core
