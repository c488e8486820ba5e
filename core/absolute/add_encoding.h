// Combines embeddings with an absolute encoding.
//
//   add          x_scale * x + e
//   multiply     x_scale * x * (1 + e)
//   concatenate  [x_scale * x, e] along the last dimension
//
// e is the encoding in float32 (float64 for float64 x). The arithmetic has the
// type of e, and the result is rounded once to x's dtype.

#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "core/absolute/encoding.h"
#include "core/base/tensor.h"
#include "core/positions/positions.h"
#include "core/runtime/row_map.h"

namespace posenc::core {

// Each value has the same number as in posenc.v1.Combination.
enum class Combination { kAdd = 1, kMultiply = 2, kConcatenate = 3 };

struct AddEncodingArgs {
  AbsoluteEncoding encoding;
  Positions positions;
  Combination combination = Combination::kAdd;
  std::optional<double> x_scale;
  ReserveFunction reserve;  // for the expanded positions; may be empty
};

// The extents of the result, and the map that computes the result's rows from
// the rows of x.
struct AddedRows {
  Shape shape;
  std::unique_ptr<RowMap> map;
};

// Prepares to combine x with the encoding. Reads x's dtype and shape, but not
// its data. x has the shape [B, S, dim], [S, dim], or [T, dim] with packed
// positions. The map can run in place unless it concatenates. The map borrows
// the tensors of the encoding. Errors name the field "encoding...",
// "positions...", "combination", "x_scale", "x.shape" or "x.dtype".
absl::StatusOr<AddedRows> PrepareAddEncoding(const AddEncodingArgs& args,
                                             const ConstTensorView& x);

}  // namespace posenc::core
