// Rotates q, k or both by a rotary encoding.
//
//   (x, y) -> A * (x cos phi - y sin phi, x sin phi + y cos phi)
//
// for every pair of channels of the rotated slice, where A is the attention
// factor; other channels pass through bit for bit (times the query scale, if q
// has one). Arithmetic is in float32 (float64 for float64), unfused, rounded
// once to the tensor's dtype, nearest even; NaN and infinity are kept. The
// bytes do not depend on instruction set, thread count or position in the
// batch, except the sign and payload of a NaN that results from several NaNs.
// Error against the exact rotation: float32 <= 4 * 2^-24 * A * |(x, y)| per
// element, dtypes of 16 and 8 bits add half an ulp of their own, unless FP8
// overflows.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/positions/positions.h"
#include "core/rope/cos_sin_evaluator.h"
#include "core/rope/prepared_rope.h"
#include "core/rope/spec.h"
#include "core/rotation/head_layout.h"
#include "core/runtime/row_map.h"

namespace posenc::core {

struct ApplyRopeArgs {
  RopeLookup rope;  // must be set
  Positions positions;
  Layout layout = Layout::kBshd;
  Direction direction = Direction::kForward;
  std::optional<QueryScale> query_scale;
  Saturation saturation = Saturation::kUnspecified;  // required for FP8
  // Claims the memory that the rotations keep for all tokens; may be empty.
  ReserveFunction reserve;
};

// Rotations of the rows of q and k, in the order of memory; a row is one head
// of one token. Null for an absent tensor. They run in place if input and
// output pairing are the same.
struct Rotations {
  std::unique_ptr<RowMap> q;
  std::unique_ptr<RowMap> k;
};

// Prepares to rotate tensors of these dtypes and shapes (it does not read the
// data). At least one is not null.
// Field paths: "rope...", "positions...", "query_scale...", "saturation",
// "q.shape", "k.dtype".
absl::StatusOr<Rotations> PrepareApplyRope(const ApplyRopeArgs& args,
                                           const ConstTensorView* q,
                                           const ConstTensorView* k);

// Rotates q and k at once. Each output has its input's dtype and shape and does
// not overlap any input or output.
absl::Status ApplyRope(const ApplyRopeArgs& args, const ConstTensorView* q,
                       const TensorView* q_out, const ConstTensorView* k,
                       const TensorView* k_out);

}  // namespace posenc::core
