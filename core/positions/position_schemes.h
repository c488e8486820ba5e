// Position ids of batches that are packed, padded, split over devices, or laid
// out on grids, and of batches that mix text and images. The messages in
// posenc.v1 service.proto describe the schemes.

#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/positions/vision_positions.h"

namespace posenc::core {

// The positions have the shape [T], and start at 0 in each sequence.
struct PackedScheme {
  std::vector<std::int64_t> lengths;
};

// The positions have the shape [B, S], with one row for each sequence.
struct PaddedScheme {
  std::vector<std::int64_t> lengths;
  std::int64_t padded_length = 0;
  bool left = false;
  std::int64_t padding_position = 0;
};

// The positions of the tokens of one device have the shape [T]. The device has
// chunks `rank` and 2 * size - 1 - `rank` of the 2 * size chunks of each
// sequence.
struct ContextParallelScheme {
  std::vector<std::int64_t> lengths;
  std::int32_t size = 0;
  std::int32_t rank = 0;
};

// The positions have the shape [axes, cells]. On axis a, a position is
// offsets[a] + steps[a] * index. The dtype is float64 if offsets or steps are
// given. With merge_size, cells come in blocks of merge_size^2 cells of the
// last two axes.
struct GridScheme {
  std::vector<std::int64_t> extents;
  std::vector<double> offsets;
  std::vector<double> steps;
  std::int32_t merge_size = 0;
};

struct VisionGrid {
  std::int64_t time = 0;
  std::int64_t height = 0;  // patches before merging
  std::int64_t width = 0;
  std::int32_t spatial_merge_size = 0;  // 0 means 1
  std::optional<double> time_step;
};

// The positions have the shape [3, T] (time, height, width), as in Qwen2-VL.
struct MultimodalScheme {
  // Each span is a number of text tokens, or a grid of patches. monostate is an
  // empty span, which is an error.
  std::vector<std::variant<std::monostate, std::int64_t, VisionGrid>> spans;
};

// The kept positions have the shape [T]. The first `sinks` and the last
// `window` of `length` positions are kept, or all positions if `length` <=
// sinks + window.
struct AttentionSinkScheme {
  std::int64_t sinks = 0;
  std::int64_t window = 0;
  std::int64_t length = 0;
};

// monostate means that no scheme is given, which is an error.
using PositionScheme =
    std::variant<std::monostate, PackedScheme, PaddedScheme,
                 ContextParallelScheme, GridScheme, MultimodalScheme,
                 AttentionSinkScheme, VisionScheme>;

// Validates the scheme. Errors name fields such as "packed.lengths[2]" and
// "grid.extents". Returns OUT_OF_RANGE (kPositionOutOfRange) if a position
// would not fit in int32, or if the magnitude of a float64 position would
// exceed 2^31.
absl::StatusOr<PositionExtents> ValidateScheme(const PositionScheme& scheme);

// Writes elements [begin, end) of a validated scheme's positions, in the
// scheme's dtype. Elements are numbered in row-major order. `data` has room for
// these elements. The run time grows with the number of sequences, spans or
// grids before `end`, and with the number of elements in the range. If
// `stopped` returns true, the function ends within about a millisecond, without
// writing the remaining elements.
void FillPositions(
    const PositionScheme& scheme, std::int64_t begin, std::int64_t end,
    char* data, absl::FunctionRef<bool()> stopped = [] { return false; });

}  // namespace posenc::core
