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

// kStill: patches stand at 0 on it.
enum class GridAxis { kTime, kHeight, kWidth, kStill };

// Where text that comes before the patches stands.
enum class TextTokens {
  kNone,         // none is taken
  kAtZero,       // at 0 on every axis (FLUX)
  kOnFirstAxis,  // 0, 1, ... there, where patches follow: time counts on from
                 // the number of text tokens (Lumina 2)
  kOnLastAxis,   // 0, 1, ... there (FLUX.2)
  kPastGrid,     // m, m + 1, ... on every axis, m half of the greatest height
                 // or width (Qwen-Image)
};

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
  TextTokens text = TextTokens::kNone;
  // Rows and columns count from -(n - n / 2), n the extent (Qwen-Image).
  bool centered = false;
  // Time counts on from the number of the grid, 0 for the first.
  bool counts_grids = false;
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
  std::int64_t text_tokens = 0;  // before the grids
};

// Errors as ValidateScheme, of "vision.grids[1].height", ...
absl::StatusOr<PositionExtents> ValidateVision(const VisionScheme& scheme);

void FillVision(const VisionScheme& scheme, const TensorView& ids);

}  // namespace posenc::core
