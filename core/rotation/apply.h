// Rotates q, k or both by a rotary encoding: every pair of channels of the
// rotated slice becomes
//
//   (x, y) -> A * (x cos phi - y sin phi, x sin phi + y cos phi)
//
// Here phi is the angle of the pair at the token's position, and A is the
// attention factor. Other channels pass through bit for bit; in q they are
// multiplied by the query scale, if there is one. Arithmetic is in float32
// (float64 for float64 tensors), without fused operations. Results are rounded
// once to the tensor's dtype, to nearest even.
// Arithmetic with NaN and infinity follows IEEE 754. The output bytes do not
// depend on instruction set, thread count or position in the batch, except the
// sign and payload of a NaN that results from several NaNs. Compared with the
// exact rotation, the error of an element is at most 4 * 2^-24 * A * |(x, y)|
// in float32. Dtypes of 16 and 8 bits add half an ulp of the dtype, unless FP8
// overflows.

#pragma once

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
  // Reserves the memory of the expanded positions; may be empty.
  ReserveFunction reserve;
};

// Rotations of the rows of q and k, in the order of memory; a row is one head
// of one token. The rotation of an absent tensor is null. The rotations can run
// in place if input and output pairing are the same.
struct Rotations {
  std::unique_ptr<RowMap> q;
  std::unique_ptr<RowMap> k;
};

// Prepares the rotations of tensors of these dtypes and shapes, without reading
// their data. At least one of q and k must not be null. Errors name fields such
// as "rope...", "positions...", "direction", "layout", "query_scale...",
// "saturation", "q", "q.shape" and "k.dtype".
absl::StatusOr<Rotations> PrepareApplyRope(const ApplyRopeArgs& args,
                                           const ConstTensorView* q,
                                           const ConstTensorView* k);

// Prepares and runs the rotations of q and k. Each output has the dtype and
// shape of its input, and does not overlap any input or the other output.
absl::Status ApplyRope(const ApplyRopeArgs& args, const ConstTensorView* q,
                       const TensorView* q_out, const ConstTensorView* k,
                       const TensorView* k_out);

}  // namespace posenc::core
