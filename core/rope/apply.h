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
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/source.h"
#include "core/positions.h"
#include "core/rope/table.h"
#include "core/runtime/row_map.h"
#include "core/tensor.h"

namespace posenc::core {

// Order of a tensor's dimensions; numbered as posenc.v1.Layout.
enum class Layout { kBshd = 1, kBhsd = 2, kSbhd = 3, kThd = 4 };

// An encoding, and what its rows need of it.
struct PreparedRope {
  explicit PreparedRope(ResolvedRope resolved)
      : rope(std::move(resolved)),
        turns(std::make_shared<const RotaryTurns>(rope)) {}

  const ResolvedRope rope;
  const std::shared_ptr<const RotaryTurns> turns;
};

// Resolves an encoding for heads of head_dim channels. Field paths as
// ResolveSource.
using RopeLookup =
    std::function<absl::StatusOr<std::shared_ptr<const PreparedRope>>(
        std::int64_t head_dim)>;

// `lookup` where it is set, else the source itself.
absl::StatusOr<std::shared_ptr<const PreparedRope>> LookUp(
    const RopeLookup& lookup, const RopeSource& source, std::int64_t head_dim);

struct ApplyRopeArgs {
  RopeSource rope;
  // Instead of `rope`: from a cache.
  RopeLookup lookup;
  Positions positions;
  Layout layout = Layout::kBshd;
  Direction direction = Direction::kForward;
  std::optional<QueryScale> query_scale;
};

// Rotations of the rows of q and k, heads of tokens in the order of memory;
// null for a tensor that is not given. They run in place where input and output
// pairing are the same.
struct Rotations {
  std::unique_ptr<RowMap> q;
  std::unique_ptr<RowMap> k;
};

// For tensors of these dtypes and shapes (the data is not looked at), at least
// one of which is not null.
// Field paths: "rope...", "positions...", "query_scale...", "q.shape",
// "k.dtype".
absl::StatusOr<Rotations> PrepareApplyRope(const ApplyRopeArgs& args,
                                           const ConstTensorView* q,
                                           const ConstTensorView* k);

// The same, at once. Each output has its input's dtype and shape and does not
// overlap any input or output.
absl::Status ApplyRope(const ApplyRopeArgs& args, const ConstTensorView* q,
                       const TensorView* q_out, const ConstTensorView* k,
                       const TensorView* k_out);

}  // namespace posenc::core
