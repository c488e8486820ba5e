// Cuts tensors of heads, and the positions of their tokens, into parts that go
// one by one through a stream.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/messages.h"

namespace posenc {

// Of a tensor, by its layout.
struct HeadExtents {
  std::int64_t batch = 1, tokens = 0, heads = 0, channels = 0;
};

// INVALID_ARGUMENT where the shape is none of this layout.
absl::StatusOr<HeadExtents> ExtentsOf(const TensorView& tensor,
                                      v1::Layout layout);

// A contiguous part: these sequences, tokens and heads.
struct Part {
  std::int64_t batch_begin = 0, batch_end = 0;
  std::int64_t token_begin = 0, token_end = 0;
  std::int64_t head_begin = 0, head_end = 0;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0, bytes = 0;  // in the tensor
};

// In the order of memory, each of at most `max_bytes` where that can be: a
// token of one head is never cut, nor, in the layouts where they lie side by
// side, the heads of a token. `whole_heads` keeps all heads together in every
// layout, for frequencies that differ by head.
absl::StatusOr<std::vector<Part>> CutTensor(const TensorView& tensor,
                                            v1::Layout layout, bool whole_heads,
                                            std::int64_t max_bytes);

// True where ids of this shape may be [B, S] or [axes, S], so that one must
// know whether the encoding has several axes.
bool NeedAxes(const v1::Tensor& ids, v1::Layout layout,
              const HeadExtents& extents);
bool NeedAxes(const v1::Positions& positions, v1::Layout layout,
              const HeadExtents& extents);
bool NeedAxes(const v1::Movement& movement, v1::Layout layout,
              const HeadExtents& extents);

// The positions of a part's tokens. INVALID_ARGUMENT where these are not the
// positions of the whole.
absl::StatusOr<v1::Positions> CutPositions(const v1::Positions& positions,
                                           v1::Layout layout,
                                           const HeadExtents& extents,
                                           bool several_axes, const Part& part);

// The same for tensors shaped like Positions.ids.
absl::StatusOr<v1::Tensor> CutIds(const v1::Tensor& ids, v1::Layout layout,
                                  const HeadExtents& extents, bool several_axes,
                                  const Part& part);

absl::StatusOr<v1::Movement> CutMovement(const v1::Movement& movement,
                                         v1::Layout layout,
                                         const HeadExtents& extents,
                                         bool several_axes, const Part& part);

}  // namespace posenc
