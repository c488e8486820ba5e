// Cuts tensors of heads, and the positions of their tokens, into parts. Each
// part goes through a stream as if it were a request of its own.
//
// A part is contiguous in memory: it is sent without a copy, and its result is
// written to the same place of the output. So a tensor is cut along its
// outermost dimension, and along an inner one only if a single index of the
// outer dimension is too large:
//
//   LAYOUT_BSHD, [2, 3, H, D], at most 2 tokens a part
//
//     sequence 0            sequence 1
//     +----+----+----+      +----+----+----+
//     | t0 | t1 | t2 |      | t0 | t1 | t2 |      memory goes on to the right
//     +----+----+----+      +----+----+----+
//      \_ part 0_/ \_1/       \_ part 2_/ \_3/
//
// Every token is rotated by its own position only, so positions are cut in the
// same way: part 1 starts at the position of t2.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/messages.h"

namespace posenc {

// The extents of a tensor of heads, in any layout.
struct HeadExtents {
  std::int64_t batch = 1, tokens = 0, heads = 0, channels = 0;
};

// Returns a tensor's extents. INVALID_ARGUMENT if the shape does not fit the
// layout or the bytes.
absl::StatusOr<HeadExtents> ExtentsOf(const TensorView& tensor,
                                      v1::Layout layout);

// A contiguous part of a tensor: these sequences, tokens and heads.
struct Part {
  std::int64_t batch_begin = 0, batch_end = 0;
  std::int64_t token_begin = 0, token_end = 0;
  std::int64_t head_begin = 0, head_end = 0;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0, bytes = 0;  // in the tensor
};

// Cuts a tensor into parts, in the order of memory, of at most `max_bytes` if
// possible. A token of one head is never cut; in layouts in which a token's
// heads lie side by side, they are not cut either. `whole_heads` keeps all
// heads together in every layout, for frequencies that differ by head.
absl::StatusOr<std::vector<Part>> CutTensor(const TensorView& tensor,
                                            v1::Layout layout, bool whole_heads,
                                            std::int64_t max_bytes);

// Returns true if ids of this shape may be [B, S] or [axes, S]: only the
// encoding determines which.
bool NeedAxes(const v1::Tensor& ids, v1::Layout layout,
              const HeadExtents& extents);
bool NeedAxes(const v1::Positions& positions, v1::Layout layout,
              const HeadExtents& extents);
bool NeedAxes(const v1::Movement& movement, v1::Layout layout,
              const HeadExtents& extents);

// Returns the positions of a part's tokens. `several_axes` says whether the
// encoding has several; it is used only if NeedAxes(). INVALID_ARGUMENT if
// `positions` do not fit the whole tensor. Missing positions stay missing: the
// server reports them.
absl::StatusOr<v1::Positions> CutPositions(const v1::Positions& positions,
                                           v1::Layout layout,
                                           const HeadExtents& extents,
                                           bool several_axes, const Part& part);

// Cuts tensors shaped like Positions.ids in the same way.
absl::StatusOr<v1::Tensor> CutIds(const v1::Tensor& ids, v1::Layout layout,
                                  const HeadExtents& extents, bool several_axes,
                                  const Part& part);

// Cuts all positions and shifts of a movement in the same way.
absl::StatusOr<v1::Movement> CutMovement(const v1::Movement& movement,
                                         v1::Layout layout,
                                         const HeadExtents& extents,
                                         bool several_axes, const Part& part);

}  // namespace posenc
