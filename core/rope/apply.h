// Rotates q, k or both by a rotary encoding.
//
//   (x, y) -> amplitude * (x cos phi - y sin phi, x sin phi + y cos phi)
//
// for every pair of channels of the rotated slice; other channels pass through
// bit for bit (times the query scale where q has one). float32 arithmetic
// (float64 for float64), unfused, rounded once to the tensor's dtype, nearest
// even; NaN and infinity are kept. The bytes do not depend on instruction set,
// thread count or place in the batch. Error against the exact rotation:
// float32 <= 4 * 2^-24 * amplitude * |(x, y)| per element, the 16-bit dtypes
// half an ulp of their own more.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "core/model/source.h"
#include "core/positions.h"
#include "core/rope/table.h"
#include "core/tensor.h"

namespace posenc::core {

// Order of a tensor's dimensions; numbered as posenc.v1.Layout.
enum class Layout { kBshd = 1, kBhsd = 2, kSbhd = 3, kThd = 4 };

struct ApplyRopeArgs {
  RopeSource rope;
  Positions positions;
  Layout layout = Layout::kBshd;
  Direction direction = Direction::kForward;
  std::optional<QueryScale> query_scale;
};

// Each output has its input's dtype and shape and does not overlap any input
// or output. A null output stands for an absent tensor: exactly those of q and
// k that are not null are rotated; at least one.
// Field paths: "rope...", "positions...", "query_scale...", "q.shape",
// "k.dtype".
absl::Status ApplyRope(const ApplyRopeArgs& args, const ConstTensorView* q,
                       const TensorView* q_out, const ConstTensorView* k,
                       const TensorView* k_out);

}  // namespace posenc::core
