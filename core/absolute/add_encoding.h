// Combines embeddings with an absolute encoding.
//
//   add          x_scale * x + e
//   multiply     x_scale * x * (1 + e)
//   concatenate  [x_scale * x, e] along the last dimension
//
// e is the float32 table (float64 for float64 x), the arithmetic is float32
// (float64), and the result is rounded once to x's dtype.

#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/absolute/encoding.h"
#include "core/positions.h"
#include "core/tensor.h"

namespace posenc::core {

// Numbered as posenc.v1.Combination.
enum class Combination { kAdd = 1, kMultiply = 2, kConcatenate = 3 };

struct AddEncodingArgs {
  AbsoluteEncoding encoding;
  Positions positions;
  Combination combination = Combination::kAdd;
  std::optional<double> x_scale;
};

// Extents of the result for x of this shape: [B, S, dim], [S, dim], or [T, dim]
// with packed positions. Validates everything but the positions' values.
// Field paths: "encoding...", "positions...", "combination", "x_scale",
// "x.shape", "x.dtype".
absl::StatusOr<Shape> AddEncodingShape(const AddEncodingArgs& args, Dtype dtype,
                                       const Shape& x);

// out: of that shape and x's dtype; it is x's own memory (not when
// concatenating), or does not overlap it.
absl::Status AddEncoding(const AddEncodingArgs& args, const ConstTensorView& x,
                         const TensorView& out);

}  // namespace posenc::core
