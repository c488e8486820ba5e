// Tensors of heads: where their heads stand in memory, and which channels of a
// head rotate. Shared by ApplyRope and Reposition.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/rope/apply.h"
#include "core/rope/frequencies.h"
#include "core/simd/kernels.h"
#include "core/tensor.h"

namespace posenc::core {

// Extents and element strides of a tensor of heads.
struct Heads {
  std::int64_t batch = 1, tokens = 0, heads = 0, head_dim = 0;
  std::int64_t batch_stride = 0, token_stride = 0, head_stride = 0;

  bool empty() const { return batch == 0 || tokens == 0 || heads == 0; }
};

// The dimension of each letter in a layout's shape.
struct LayoutOrder {
  const char* name;
  int rank;
  int batch, token, head;  // batch -1: there is none
};

// FieldInvalid("layout").
absl::StatusOr<LayoutOrder> FindLayout(Layout layout);

// Field paths: "dtype", "shape".
absl::StatusOr<Heads> ReadHeads(const ConstTensorView& tensor,
                                const LayoutOrder& order);

// kShapeMismatch ("<name>.shape") where frequencies by head are for another
// number of heads.
absl::Status CheckHeadCount(const ResolvedRope& rope,
                            const ConstTensorView& tensor, const Heads& heads,
                            absl::string_view name);

// A run of channels that holds whole pairs: all that rotate, or those of one
// axis where each axis splits its own channels into halves.
struct Segment {
  std::int64_t channel;
  std::int64_t first_pair;
  std::int64_t pairs;
};

// The segments of a head of head_dim channels; none for NoPE.
std::vector<Segment> SegmentsOf(const RopeSpec& spec, std::int64_t head_dim);

// How the heads of one tensor rotate.
struct HeadPlan {
  Dtype dtype = Dtype::kFloat32;
  std::size_t element = 0;  // bytes
  std::vector<Segment> segments;
  // The channels that pass through.
  std::int64_t pass_channel = 0;
  std::int64_t pass_width = 0;
  simd::RotateKernel rotate = nullptr;
  bool same_pairing = true;  // in and out
};

// All but the segments and pairings come from `spec`.
HeadPlan PlanHeads(Dtype dtype, std::int64_t head_dim, const RopeSpec& spec,
                   std::vector<Segment> segments, Pairing from, Pairing to);

}  // namespace posenc::core
