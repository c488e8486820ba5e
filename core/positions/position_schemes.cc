#include "core/positions/position_schemes.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/positions/positions.h"

namespace posenc::core {
namespace {

// Positions are at most 2^31 (posenc.v1.Positions), but int32 positions are at
// most 2^31 - 1.
constexpr std::int64_t kMaxInt32 = 2147483647;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 62;
constexpr int kMultimodalAxes = 3;
constexpr std::size_t kMaxGridAxes = 64;

absl::Status OutOfRange(absl::string_view field, absl::string_view fact,
                        std::int64_t index) {
  return MakeError(absl::StatusCode::kOutOfRange,
                   ErrorReason::kPositionOutOfRange, field, fact,
                   {{"index", absl::StrCat(index)}});
}

// Checks a length. Its positions 0 .. length - 1 must fit in int32.
absl::Status CheckLength(absl::string_view field, std::int64_t length,
                         std::int64_t index) {
  if (length < 0) {
    return FieldInvalid(field, absl::StrCat(length, "; must not be negative"));
  }
  if (length - 1 > kMaxInt32) {
    return OutOfRange(field,
                      absl::StrCat(length, "; its last position is ",
                                   length - 1, ", more than ", kMaxInt32),
                      index);
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(absl::string_view field,
                          const std::vector<std::int64_t>& lengths) {
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    // The names of millions of fields would take most of the time.
    if (CheckLength("", lengths[i], i).ok()) continue;
    return CheckLength(absl::StrCat(field, "[", i, "]"), lengths[i], i);
  }
  return absl::OkStatus();
}

absl::StatusOr<PositionExtents> Validate(const VisionScheme& vision) {
  return ValidateVision(vision);
}

// The sum of validated lengths. Each length is below 2^32, so the sum cannot
// overflow.
std::int64_t Sum(const std::vector<std::int64_t>& lengths) {
  std::int64_t sum = 0;
  for (const std::int64_t length : lengths) sum += length;
  return sum;
}

absl::StatusOr<PositionExtents> Validate(std::monostate) {
  return FieldRequired("",
                       "no scheme; give packed, padded, context_parallel, "
                       "grid, multimodal, attention_sinks or vision");
}

absl::StatusOr<PositionExtents> Validate(const PackedScheme& packed) {
  const absl::Status status = CheckLengths("packed.lengths", packed.lengths);
  if (!status.ok()) return status;
  return PositionExtents{Dtype::kInt32, {Sum(packed.lengths)}};
}

absl::StatusOr<PositionExtents> Validate(const PaddedScheme& padded) {
  absl::Status status = CheckLengths("padded.lengths", padded.lengths);
  if (status.ok()) {
    status = CheckLength("padded.padded_length", padded.padded_length, 0);
  }
  if (!status.ok()) return status;
  for (std::size_t i = 0; i < padded.lengths.size(); ++i) {
    if (padded.lengths[i] > padded.padded_length) {
      return FieldInvalid(
          absl::StrCat("padded.lengths[", i, "]"),
          absl::StrCat(padded.lengths[i],
                       ", more than padded_length, which is ",
                       padded.padded_length, "; raise it to the longest"));
    }
  }
  if (padded.padding_position > kMaxInt32 ||
      padded.padding_position < -kMaxInt32 - 1) {
    return OutOfRange("padded.padding_position",
                      absl::StrCat(padded.padding_position, "; must be ",
                                   -kMaxInt32 - 1, " to ", kMaxInt32),
                      0);
  }
  Shape shape = {static_cast<std::int64_t>(padded.lengths.size()),
                 padded.padded_length};
  const absl::StatusOr<std::int64_t> count = ElementCount(shape);
  if (!count.ok()) {
    return FieldInvalid(
        "padded.padded_length",
        absl::StrCat(ShapeToString(shape), " has more than 2^62 positions"));
  }
  return PositionExtents{Dtype::kInt32, std::move(shape)};
}

absl::StatusOr<PositionExtents> Validate(const ContextParallelScheme& split) {
  if (split.size == 0) {
    return FieldRequired("context_parallel.size",
                         "is 0; must be at least 1, the number of devices");
  }
  if (split.size < 0) {
    return FieldInvalid("context_parallel.size",
                        absl::StrCat(split.size, "; must be at least 1"));
  }
  if (split.rank < 0 || split.rank >= split.size) {
    return FieldInvalid(
        "context_parallel.rank",
        absl::StrCat(split.rank, "; must be 0 to ", split.size - 1,
                     ", as size is ", split.size));
  }
  const absl::Status status =
      CheckLengths("context_parallel.lengths", split.lengths);
  if (!status.ok()) return status;
  const std::int64_t chunks = std::int64_t{2} * split.size;
  for (std::size_t i = 0; i < split.lengths.size(); ++i) {
    const std::int64_t length = split.lengths[i];
    if (length % chunks != 0) {
      return FieldInvalid(
          absl::StrCat("context_parallel.lengths[", i, "]"),
          absl::StrCat(length, "; must divide by 2 * size, which is ", chunks,
                       "; pad it to ", (length / chunks + 1) * chunks));
    }
  }
  return PositionExtents{Dtype::kInt32, {Sum(split.lengths) / split.size}};
}

// Checks a list of offsets or steps. The list must be empty, or have one finite
// value for each extent.
absl::Status CheckPerAxis(absl::string_view field,
                          const std::vector<double>& values, std::size_t axes) {
  if (!values.empty() && values.size() != axes) {
    return FieldInvalid(
        field, absl::StrCat(values.size(), " values, but there are ", axes,
                            " extents; give one for each, or none"));
  }
  for (std::size_t a = 0; a < values.size(); ++a) {
    if (!std::isfinite(values[a])) {
      return FieldInvalid(
          absl::StrCat(field, "[", a, "]"),
          absl::StrCat(NumberText(values[a]), "; must be finite"));
    }
  }
  return absl::OkStatus();
}

bool IsFractional(const GridScheme& grid) {
  return !grid.offsets.empty() || !grid.steps.empty();
}

double GridPosition(const GridScheme& grid, std::size_t axis,
                    std::int64_t index) {
  const double offset = grid.offsets.empty() ? 0 : grid.offsets[axis];
  const double step = grid.steps.empty() ? 1 : grid.steps[axis];
  return offset + step * static_cast<double>(index);
}

// Checks merge_size, if it is given.
absl::Status CheckMerge(const GridScheme& grid) {
  const std::size_t axes = grid.extents.size();
  if (grid.merge_size < 0) {
    return FieldInvalid(
        "grid.merge_size",
        absl::StrCat(grid.merge_size, "; must not be negative"));
  }
  if (grid.merge_size <= 1) return absl::OkStatus();
  if (axes < 2) {
    return FieldInvalid("grid.merge_size",
                        absl::StrCat(grid.merge_size,
                                     ", but the grid has one axis; blocks "
                                     "take two, leave it unset"));
  }
  for (std::size_t a = axes - 2; a < axes; ++a) {
    if (grid.extents[a] % grid.merge_size != 0) {
      return FieldInvalid(absl::StrCat("grid.extents[", a, "]"),
                          absl::StrCat(grid.extents[a],
                                       "; must divide by merge_size, which is ",
                                       grid.merge_size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<PositionExtents> Validate(const GridScheme& grid) {
  const std::size_t axes = grid.extents.size();
  if (axes == 0) {
    return FieldRequired("grid.extents", "empty; give the cells of each axis");
  }
  if (axes > kMaxGridAxes) {
    return FieldInvalid("grid.extents",
                        absl::StrCat(axes, " axes; at most ", kMaxGridAxes));
  }
  absl::Status status = CheckPerAxis("grid.offsets", grid.offsets, axes);
  if (status.ok()) status = CheckPerAxis("grid.steps", grid.steps, axes);
  if (!status.ok()) return status;
  for (std::size_t a = 0; a < axes; ++a) {
    const std::int64_t extent = grid.extents[a];
    const std::string field = absl::StrCat("grid.extents[", a, "]");
    if (extent < 1) {
      return FieldInvalid(field, absl::StrCat(extent, "; must be at least 1"));
    }
    if (!IsFractional(grid)) {
      status = CheckLength(field, extent, a);
      if (!status.ok()) return status;
      continue;
    }
    for (const std::int64_t index : {std::int64_t{0}, extent - 1}) {
      const double position = GridPosition(grid, a, index);
      if (!(std::fabs(position) <= kMaxPosition)) {
        return OutOfRange(
            field,
            absl::StrCat(extent, "; the position of cell ", index, " is ",
                         PositionText(position), ", beyond 2^31"),
            a);
      }
    }
  }
  status = CheckMerge(grid);
  if (!status.ok()) return status;

  Shape shape = grid.extents;
  shape.push_back(static_cast<std::int64_t>(axes));
  if (!ElementCount(shape).ok()) {
    return FieldInvalid("grid.extents",
                        absl::StrCat(ShapeToString(grid.extents),
                                     " has more than 2^62 positions"));
  }
  std::int64_t cells = 1;
  for (const std::int64_t extent : grid.extents) cells *= extent;
  return PositionExtents{IsFractional(grid) ? Dtype::kFloat64 : Dtype::kInt32,
                         {static_cast<std::int64_t>(axes), cells}};
}

// The grid of a span after its patches are merged.
struct MergedGrid {
  std::int64_t time, height, width;
  double time_step;

  // index * time_step, truncated to an integer. The product is in float64, as
  // in torch with a float64 step.
  double TimePosition(std::int64_t index) const {
    return std::trunc(static_cast<double>(index) * time_step);
  }
};

MergedGrid Merge(const VisionGrid& vision) {
  const std::int64_t merge = std::max(vision.spatial_merge_size, 1);
  return {vision.time, vision.height / merge, vision.width / merge,
          vision.time_step.value_or(1)};
}

absl::Status CheckVision(const std::string& field, const VisionGrid& vision) {
  if (vision.spatial_merge_size < 0) {
    return FieldInvalid(
        absl::StrCat(field, ".spatial_merge_size"),
        absl::StrCat(vision.spatial_merge_size, "; must not be negative"));
  }
  const std::int64_t merge = std::max(vision.spatial_merge_size, 1);
  const struct {
    const char* name;
    std::int64_t extent, divisor;
  } extents[] = {{".time", vision.time, 1},
                 {".height", vision.height, merge},
                 {".width", vision.width, merge}};
  for (const auto& [name, extent, divisor] : extents) {
    if (extent < 1) {
      return FieldInvalid(absl::StrCat(field, name),
                          absl::StrCat(extent, "; must be at least 1"));
    }
    if (extent % divisor != 0) {
      return FieldInvalid(
          absl::StrCat(field, name),
          absl::StrCat(extent,
                       " patches; must divide by spatial_merge_size, which is ",
                       divisor));
    }
  }
  const double step = vision.time_step.value_or(1);
  if (!(std::isfinite(step) && step >= 0)) {
    return FieldInvalid(
        absl::StrCat(field, ".time_step"),
        absl::StrCat(NumberText(step), "; must be finite and not negative"));
  }
  return absl::OkStatus();
}

// The state of a sequence after its first spans.
struct Walk {
  std::int64_t next = 0;  // one past the greatest position
  std::int64_t tokens = 0;
};

absl::Status Advance(const std::string& field, std::int64_t index,
                     double greatest, std::int64_t tokens, Walk* walk) {
  const double last = static_cast<double>(walk->next) + greatest;
  if (last > kMaxInt32) {
    return OutOfRange(
        field,
        absl::StrCat("its greatest position is ", PositionText(last),
                     ", more than ", kMaxInt32),
        index);
  }
  if (tokens > kMaxTokens / kMultimodalAxes - walk->tokens) {
    return FieldInvalid(field, "more than 2^62 positions up to here");
  }
  walk->next += static_cast<std::int64_t>(greatest) + 1;
  walk->tokens += tokens;
  return absl::OkStatus();
}

absl::StatusOr<PositionExtents> Validate(const MultimodalScheme& scheme) {
  if (scheme.spans.empty()) {
    return FieldRequired("multimodal.spans",
                         "empty; give text_tokens and vision grids in order");
  }
  Walk walk;
  for (std::size_t i = 0; i < scheme.spans.size(); ++i) {
    const std::string field = absl::StrCat("multimodal.spans[", i, "]");
    absl::Status status;
    if (const auto* text = std::get_if<std::int64_t>(&scheme.spans[i])) {
      const std::string text_field = absl::StrCat(field, ".text_tokens");
      status = CheckLength(text_field, *text, i);
      if (status.ok()) {
        // A span of 0 tokens does not advance the sequence, because its
        // greatest position is -1.
        status = Advance(text_field, i, static_cast<double>(*text - 1), *text,
                         &walk);
      }
    } else if (const auto* vision = std::get_if<VisionGrid>(&scheme.spans[i])) {
      const std::string vision_field = absl::StrCat(field, ".vision");
      status = CheckVision(vision_field, *vision);
      if (!status.ok()) return status;
      const MergedGrid grid = Merge(*vision);
      const absl::StatusOr<std::int64_t> tokens =
          ElementCount({grid.time, grid.height, grid.width});
      if (!tokens.ok()) {
        return FieldInvalid(vision_field, "more than 2^62 tokens");
      }
      const double greatest =
          std::max(grid.TimePosition(grid.time - 1),
                   static_cast<double>(std::max(grid.height, grid.width) - 1));
      status = Advance(vision_field, i, greatest, *tokens, &walk);
    } else {
      status = FieldRequired(field, "empty; give text_tokens or vision");
    }
    if (!status.ok()) return status;
  }
  return PositionExtents{Dtype::kInt32,
                         {kMultimodalAxes, walk.tokens},
                         walk.next,
                         walk.next - walk.tokens};
}

// Returns the number of kept positions: all of them until the cache of sinks +
// window is full. Limits `sinks` and `window` to the length first, because
// their sum could overflow.
std::int64_t Kept(const AttentionSinkScheme& scheme) {
  return std::min(std::min(scheme.sinks, scheme.length) +
                      std::min(scheme.window, scheme.length),
                  scheme.length);
}

absl::StatusOr<PositionExtents> Validate(const AttentionSinkScheme& scheme) {
  const absl::Status status =
      CheckLength("attention_sinks.length", scheme.length, 0);
  if (!status.ok()) return status;
  for (const auto& [field, count] :
       {std::pair("attention_sinks.sinks", scheme.sinks),
        std::pair("attention_sinks.window", scheme.window)}) {
    if (count < 0) {
      return FieldInvalid(field, absl::StrCat(count, "; must not be negative"));
    }
  }
  if (scheme.sinks == 0 && scheme.window == 0) {
    return FieldRequired("attention_sinks.window",
                         "is 0, and sinks is 0; nothing would be kept");
  }
  const std::int64_t kept = Kept(scheme);
  return PositionExtents{Dtype::kInt32, {kept}, kept, 0};
}

void Fill(std::monostate, PositionWriter*) {}

void Fill(const PackedScheme& packed, PositionWriter* out) {
  for (const std::int64_t length : packed.lengths) {
    if (out->done()) return;
    out->PutRun(0, length);
  }
}

void Fill(const PaddedScheme& padded, PositionWriter* out) {
  for (const std::int64_t length : padded.lengths) {
    if (out->done()) return;
    const std::int64_t padding = padded.padded_length - length;
    if (padded.left) out->PutCopies(padded.padding_position, padding);
    out->PutRun(0, length);
    if (!padded.left) out->PutCopies(padded.padding_position, padding);
  }
}

void Fill(const ContextParallelScheme& split, PositionWriter* out) {
  const std::int64_t chunks = std::int64_t{2} * split.size;
  for (const std::int64_t length : split.lengths) {
    if (out->done()) return;
    const std::int64_t chunk = length / chunks;
    out->PutRun(split.rank * chunk, chunk);
    out->PutRun((chunks - 1 - split.rank) * chunk, chunk);
  }
}

// The number of cells between two neighbours on `axis`, in row-major order.
std::int64_t GridStride(const GridScheme& grid, std::size_t axis) {
  std::int64_t stride = 1;
  for (std::size_t a = axis + 1; a < grid.extents.size(); ++a) {
    stride *= grid.extents[a];
  }
  return stride;
}

// The index of cell number `cell` on one of the last two axes. With merge_size
// m these axes are cut into blocks of m * m cells, and the cells of a block
// follow each other, because a vision tower merges them into one token:
//
//   m = 2, cells of a 2 x 4 grid    0 1 | 4 5
//                                   2 3 | 6 7
std::int64_t MergedIndex(const GridScheme& grid, bool last, std::int64_t cell) {
  const std::size_t axes = grid.extents.size();
  const std::int64_t merge = grid.merge_size;
  const std::int64_t height = grid.extents[axes - 2] / merge;
  const std::int64_t width = grid.extents[axes - 1] / merge;
  const std::int64_t in_block = cell % (merge * merge);
  const std::int64_t block = cell / (merge * merge);
  return last ? block % width * merge + in_block % merge
              : block / width % height * merge + in_block / merge;
}

void Fill(const GridScheme& grid, PositionWriter* out) {
  const std::size_t axes = grid.extents.size();
  const std::int64_t cells = GridStride(grid, 0) * grid.extents[0];
  const bool fractional = IsFractional(grid);
  for (std::size_t a = 0; a < axes; ++a) {
    const bool merged = grid.merge_size > 1 && a + 2 >= axes;
    const std::int64_t stride = GridStride(grid, a);
    const auto index = [&](std::int64_t cell) {
      return merged ? MergedIndex(grid, a + 1 == axes, cell)
                    : cell / stride % grid.extents[a];
    };
    if (fractional) {
      out->Put(cells, [&](std::int64_t cell) {
        return GridPosition(grid, a, index(cell));
      });
    } else {
      out->Put(cells, [&](std::int64_t cell) {
        return static_cast<std::int32_t>(index(cell));
      });
    }
  }
}

void Fill(const MultimodalScheme& scheme, PositionWriter* out) {
  for (int axis = 0; axis < kMultimodalAxes; ++axis) {
    std::int64_t start = 0;
    for (const auto& span : scheme.spans) {
      if (const auto* text = std::get_if<std::int64_t>(&span)) {
        out->PutRun(start, *text);
        start += *text;
        continue;
      }
      const MergedGrid grid = Merge(std::get<VisionGrid>(span));
      const std::int64_t frame = grid.height * grid.width;
      out->Put(grid.time * frame, [&](std::int64_t token) {
        const std::int64_t index =
            axis == 0
                ? static_cast<std::int64_t>(grid.TimePosition(token / frame))
            : axis == 1 ? token / grid.width % grid.height
                        : token % grid.width;
        return static_cast<std::int32_t>(start + index);
      });
      const auto last =
          static_cast<std::int64_t>(grid.TimePosition(grid.time - 1));
      start += std::max({last, grid.height - 1, grid.width - 1}) + 1;
    }
  }
}

void Fill(const VisionScheme& vision, PositionWriter* out) {
  FillVision(vision, out);
}

void Fill(const AttentionSinkScheme& scheme, PositionWriter* out) {
  const std::int64_t sinks = std::min(scheme.sinks, scheme.length);
  const std::int64_t window = Kept(scheme) - sinks;
  out->PutRun(0, sinks);
  out->PutRun(scheme.length - window, window);
}

}  // namespace

absl::StatusOr<PositionExtents> ValidateScheme(const PositionScheme& scheme) {
  return std::visit([](const auto& given) { return Validate(given); }, scheme);
}

void FillPositions(const PositionScheme& scheme, std::int64_t begin,
                   std::int64_t end, char* data,
                   absl::FunctionRef<bool()> stopped) {
  PositionWriter out(begin, end, data, stopped);
  std::visit([&out](const auto& given) { Fill(given, &out); }, scheme);
}

}  // namespace posenc::core
