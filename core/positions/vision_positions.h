// Positions that a vision tower gives to the patches of images and videos.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"

namespace posenc::core {

// The extents of a valid scheme (position_schemes.h).
struct PositionExtents {
  Dtype dtype = Dtype::kInt32;
  Shape shape;
  // The position of the next decoded token. This position is set only for
  // multimodal batches and attention sinks. For attention sinks it is a
  // position in the cache.
  std::int64_t next_position = 0;
  // For multimodal batches: next_position minus the number of tokens.
  std::int64_t delta = 0;
};

// On a kStill axis, the position of every patch is 0.
enum class GridAxis { kTime, kHeight, kWidth, kStill };

// Positions of the text tokens before the patches.
enum class TextTokens {
  kNone,         // text is refused
  kAtZero,       // at 0 on every axis (FLUX)
  kOnFirstAxis,  // 0, 1, ... on the first axis; time starts at the number of
                 // text tokens (Lumina 2)
  kOnLastAxis,   // 0, 1, ... on the last axis (FLUX.2)
  kPastGrid,     // m, m + 1, ... on every axis; m is half of the greatest
                 // height or width (Qwen-Image)
};

// How a tower numbers its patches. Tokens come in row-major order of time,
// height and width. Within a frame, tokens come in blocks of merge_size^2
// patches.
struct TowerGrid {
  std::vector<GridAxis> axes;  // the axes of a position, in order
  std::int32_t merge_size = 1;
  std::int32_t first = 0;  // position of the first row and column
  // Class tokens before and after the patches of each grid, at 0 on every axis.
  std::int32_t leading = 0;
  std::int32_t trailing = 0;
  // If > 0, a position is index * (window / width), in float32 (SAM 3).
  std::int64_t window = 0;
  // If true, a position is 2 pi c. c is the coordinate of the patch's center in
  // an image whose coordinates go from -1 to 1. Each step rounds to float32, as
  // in DINOv3.
  bool centers = false;
  TextTokens text = TextTokens::kNone;
  // Positions of rows and columns start at -(n - n / 2) for the extent n
  // (Qwen-Image).
  bool centered = false;
  // The time axis starts at the index of the grid: at 0 for the first grid, at
  // 1 for the second grid, ...
  bool counts_grids = false;
};

// An image, or a video of `time` frames, in patches.
struct PatchGrid {
  std::int64_t time = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// The positions have the shape [axes, T]: first the text tokens, then the grids
// one after the other. The dtype is float32 if the tower's positions are
// fractional, else int32.
struct VisionScheme {
  TowerGrid tower;
  std::vector<PatchGrid> grids;
  std::int64_t text_tokens = 0;  // before the grids
};

// Returns the errors of ValidateScheme(), with fields such as
// "vision.grids[1].height".
absl::StatusOr<PositionExtents> Validate(const VisionScheme& scheme);

// Returns the column of cell number `cell` in a frame if `column` is true, else
// the row. Cells come in blocks of merge * merge cells, because a vision tower
// merges them into one token:
//
//   merge = 2, cells of a 2 x 4 frame    0 1 | 4 5
//                                        2 3 | 6 7
std::int64_t IndexInBlocks(std::int64_t cell, std::int64_t width,
                           std::int64_t merge, bool column);

// Writes positions one after the other. Positions in the range [begin, end) are
// computed and stored. All other positions are only counted.
class PositionWriter {
 public:
  PositionWriter(std::int64_t begin, std::int64_t end, char* data,
                 absl::FunctionRef<bool()> stopped)
      : begin_(begin), end_(end), data_(data), stopped_(stopped) {}

  // Returns true if no more positions are needed: the range has ended, or
  // `stopped` has returned true. Every 2^20th call of done() calls `stopped`,
  // about once in a millisecond.
  bool done() {
    constexpr int kAskEvery = 1 << 20;
    return at_ >= end_ || (++asked_ % kAskEvery == 0 && stopped_());
  }

  // Adds value(0), value(1), ..., value(count - 1).
  template <typename Value>
  void Put(std::int64_t count, const Value& value) {
    const std::int64_t last = std::min(end_ - at_, count);
    for (std::int64_t i = std::max(begin_ - at_, std::int64_t{0}); i < last;
         ++i) {
      const auto position = value(i);
      std::memcpy(data_, &position, sizeof(position));
      data_ += sizeof(position);
    }
    at_ += count;
  }
  // Adds first, first + 1, ... as int32.
  void PutRun(std::int64_t first, std::int64_t count) {
    Put(count, [first](std::int64_t i) {
      return static_cast<std::int32_t>(first + i);
    });
  }
  // Adds `count` copies of `position` as int32.
  void PutCopies(std::int64_t position, std::int64_t count) {
    Put(count, [position](std::int64_t /*i*/) {
      return static_cast<std::int32_t>(position);
    });
  }

 private:
  const std::int64_t begin_, end_;
  char* data_;
  const absl::FunctionRef<bool()> stopped_;
  std::int64_t at_ = 0;     // number of positions so far
  std::int64_t asked_ = 0;  // number of calls of done()
};

void Fill(const VisionScheme& scheme, PositionWriter* out);

}  // namespace posenc::core
