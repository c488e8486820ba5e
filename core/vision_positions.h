// Positions that a vision tower gives to the patches of images and videos.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/tensor.h"

namespace posenc::core {

// What a scheme of positions comes to (position_schemes.h).
struct PositionExtents {
  Dtype dtype = Dtype::kInt32;
  Shape shape;
  // The position at which decoding goes on; for multimodal batches, and for
  // attention sinks (counted in the cache).
  std::int64_t next_position = 0;
  // Multimodal: next_position minus the number of tokens.
  std::int64_t delta = 0;
};

enum class GridAxis { kTime, kHeight, kWidth };

// How a tower counts patches. Tokens come in row-major order of time, height
// and width, within a frame by blocks of merge_size^2 patches.
struct TowerGrid {
  std::vector<GridAxis> axes;  // of a position, in this order
  std::int32_t merge_size = 1;
  std::int32_t first = 0;  // index of the first patch on each axis
  // Tokens of the class, before and after the patches of each grid: they stand
  // at 0 on every axis.
  std::int32_t leading = 0;
  std::int32_t trailing = 0;
  // > 0: a position is index * (window / width), in float32 (SAM 3).
  std::int64_t window = 0;
  // A position is 2 pi c, c the patch's center if the image reaches from -1 to
  // 1, in float32 step by step as DINOv3 computes it.
  bool centers = false;
};

// An image, or a video of `time` frames, in patches.
struct PatchGrid {
  std::int64_t time = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// [axes, T]: the grids one after the other. float32 if the tower's positions
// are fractional, else int32.
struct VisionScheme {
  TowerGrid tower;
  std::vector<PatchGrid> grids;
  std::int64_t text_tokens = 0;  // before the grids, at 0 on every axis
};

// Errors as ValidateScheme, of "vision.grids[1].height", ...
absl::StatusOr<PositionExtents> ValidateVision(const VisionScheme& scheme);

void FillVision(const VisionScheme& scheme, const TensorView& ids);

}  // namespace posenc::core
