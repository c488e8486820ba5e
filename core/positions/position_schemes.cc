#include "core/positions/position_schemes.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/positions/positions.h"

namespace posenc::core {
namespace {

// Positions are at most 2^31 (posenc.v1.Positions), but int32 positions are at
// most 2^31 - 1.
constexpr std::int64_t kMaxInt32 = 2147483647;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 62;
constexpr int kMultimodalAxes = 3;
constexpr std::size_t kMaxGridAxes = 64;

// Checks that a number is at least `least`, which is 0 or 1.
absl::Status CheckLeast(absl::string_view field, std::int64_t value,
                        int least) {
  if (value >= least) return absl::OkStatus();
  return FieldInvalid(field,
                      absl::StrCat(value, least == 0 ? "; must not be negative"
                                                     : "; must be at least 1"));
}

// Checks a length. The positions 0 .. length - 1 must fit in int32.
absl::Status CheckLength(absl::string_view field, std::int64_t length,
                         std::int64_t index) {
  RETURN_IF_ERROR(CheckLeast(field, length, 0));
  if (length - 1 > kMaxInt32) {
    return PositionOutOfRange(
        field,
        absl::StrCat(length, "; its last position is ", length - 1,
                     ", more than ", kMaxInt32),
        index);
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(absl::string_view field,
                          const std::vector<std::int64_t>& lengths) {
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    // A field's name is composed only if its check has failed, because
    // composing millions of names would take most of the time.
    if (CheckLength("", lengths[i], i).ok()) continue;
    return CheckLength(absl::StrCat(field, "[", i, "]"), lengths[i], i);
  }
  return absl::OkStatus();
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
  RETURN_IF_ERROR(CheckLengths("packed.lengths", packed.lengths));
  return PositionExtents{Dtype::kInt32, {Sum(packed.lengths)}};
}

absl::StatusOr<PositionExtents> Validate(const PaddedScheme& padded) {
  RETURN_IF_ERROR(CheckLengths("padded.lengths", padded.lengths));
  RETURN_IF_ERROR(CheckLength("padded.padded_length", padded.padded_length, 0));
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
    return PositionOutOfRange(
        "padded.padding_position",
        absl::StrCat(padded.padding_position, "; must be ", -kMaxInt32 - 1,
                     " to ", kMaxInt32),
        0);
  }
  Shape shape = {static_cast<std::int64_t>(padded.lengths.size()),
                 padded.padded_length};
  if (!ElementCount(shape).ok()) {
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
  RETURN_IF_ERROR(CheckLeast("context_parallel.size", split.size, 1));
  if (split.rank < 0 || split.rank >= split.size) {
    return MustBe(
        "context_parallel.rank", split.rank,
        absl::StrCat("0 to ", split.size - 1, ", as size is ", split.size));
  }
  RETURN_IF_ERROR(CheckLengths("context_parallel.lengths", split.lengths));
  const std::int64_t chunks = std::int64_t{2} * split.size;
  for (std::size_t i = 0; i < split.lengths.size(); ++i) {
    const std::int64_t length = split.lengths[i];
    if (length % chunks != 0) {
      return MustBe(
          absl::StrCat("context_parallel.lengths[", i, "]"), length,
          absl::StrCat("divisible by 2 * size, which is ", chunks,
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
      return MustBe(absl::StrCat(field, "[", a, "]"), values[a], "finite");
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

absl::Status CheckMerge(const GridScheme& grid) {
  const std::size_t axes = grid.extents.size();
  RETURN_IF_ERROR(CheckLeast("grid.merge_size", grid.merge_size, 0));
  if (grid.merge_size <= 1) return absl::OkStatus();
  if (axes < 2) {
    return FieldInvalid("grid.merge_size",
                        absl::StrCat(grid.merge_size,
                                     ", but the grid has one axis; blocks "
                                     "take two, leave it unset"));
  }
  for (std::size_t a = axes - 2; a < axes; ++a) {
    if (grid.extents[a] % grid.merge_size != 0) {
      return MustBe(
          absl::StrCat("grid.extents[", a, "]"), grid.extents[a],
          absl::StrCat("divisible by merge_size, which is ", grid.merge_size));
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
  RETURN_IF_ERROR(CheckPerAxis("grid.offsets", grid.offsets, axes));
  RETURN_IF_ERROR(CheckPerAxis("grid.steps", grid.steps, axes));
  for (std::size_t a = 0; a < axes; ++a) {
    const std::int64_t extent = grid.extents[a];
    const std::string field = absl::StrCat("grid.extents[", a, "]");
    RETURN_IF_ERROR(CheckLeast(field, extent, 1));
    if (!IsFractional(grid)) {
      RETURN_IF_ERROR(CheckLength(field, extent, a));
      continue;
    }
    for (const std::int64_t index : {std::int64_t{0}, extent - 1}) {
      const double position = GridPosition(grid, a, index);
      if (!(std::fabs(position) <= kMaxPosition)) {
        return PositionOutOfRange(
            field,
            absl::StrCat(extent, "; the position of cell ", index, " is ",
                         PlainNumber(position), ", beyond 2^31"),
            a);
      }
    }
  }
  RETURN_IF_ERROR(CheckMerge(grid));
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

  // Returns index * time_step, truncated to an integer. The product is in
  // float64, as in torch with a float64 step.
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
  RETURN_IF_ERROR(CheckLeast(absl::StrCat(field, ".spatial_merge_size"),
                             vision.spatial_merge_size, 0));
  const std::int64_t merge = std::max(vision.spatial_merge_size, 1);
  const struct {
    const char* name;
    std::int64_t extent, divisor;
  } extents[] = {{".time", vision.time, 1},
                 {".height", vision.height, merge},
                 {".width", vision.width, merge}};
  for (const auto& [name, extent, divisor] : extents) {
    RETURN_IF_ERROR(CheckLeast(absl::StrCat(field, name), extent, 1));
    if (extent % divisor != 0) {
      return FieldInvalid(
          absl::StrCat(field, name),
          absl::StrCat(
              extent,
              " patches; must be divisible by spatial_merge_size, which is ",
              divisor));
    }
  }
  const double step = vision.time_step.value_or(1);
  if (!(std::isfinite(step) && step >= 0)) {
    return MustBe(absl::StrCat(field, ".time_step"), step,
                  "finite and not negative");
  }
  return absl::OkStatus();
}

// The state after the spans that have been read so far.
struct Walk {
  std::int64_t next = 0;  // one past the greatest position
  std::int64_t tokens = 0;
};

absl::Status Advance(const std::string& field, std::int64_t index,
                     double greatest, std::int64_t tokens, Walk* walk) {
  const double last = static_cast<double>(walk->next) + greatest;
  if (last > kMaxInt32) {
    return PositionOutOfRange(
        field,
        absl::StrCat("its greatest position is ", PlainNumber(last),
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
    if (const auto* text = std::get_if<std::int64_t>(&scheme.spans[i])) {
      const std::string text_field = absl::StrCat(field, ".text_tokens");
      RETURN_IF_ERROR(CheckLength(text_field, *text, i));
      // A span of 0 tokens does not advance the sequence, because its greatest
      // position is -1.
      RETURN_IF_ERROR(
          Advance(text_field, i, static_cast<double>(*text - 1), *text, &walk));
    } else if (const auto* vision = std::get_if<VisionGrid>(&scheme.spans[i])) {
      const std::string vision_field = absl::StrCat(field, ".vision");
      RETURN_IF_ERROR(CheckVision(vision_field, *vision));
      const MergedGrid grid = Merge(*vision);
      const absl::StatusOr<std::int64_t> tokens =
          ElementCount({grid.time, grid.height, grid.width});
      if (!tokens.ok()) {
        return FieldInvalid(vision_field, "more than 2^62 tokens");
      }
      const double greatest =
          std::max(grid.TimePosition(grid.time - 1),
                   static_cast<double>(std::max(grid.height, grid.width) - 1));
      RETURN_IF_ERROR(Advance(vision_field, i, greatest, *tokens, &walk));
    } else {
      return FieldRequired(field, "empty; give text_tokens or vision");
    }
  }
  return PositionExtents{Dtype::kInt32,
                         {kMultimodalAxes, walk.tokens},
                         walk.next,
                         walk.next - walk.tokens};
}

// Returns the number of kept positions. All positions are kept until there are
// more than sinks + window. Limits `sinks` and `window` to the length first,
// because their sum could overflow.
std::int64_t Kept(const AttentionSinkScheme& scheme) {
  return std::min(std::min(scheme.sinks, scheme.length) +
                      std::min(scheme.window, scheme.length),
                  scheme.length);
}

absl::StatusOr<PositionExtents> Validate(const AttentionSinkScheme& scheme) {
  RETURN_IF_ERROR(CheckLength("attention_sinks.length", scheme.length, 0));
  RETURN_IF_ERROR(CheckLeast("attention_sinks.sinks", scheme.sinks, 0));
  RETURN_IF_ERROR(CheckLeast("attention_sinks.window", scheme.window, 0));
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

// The difference between the numbers of two cells that are neighbours on
// `axis`. Cells are numbered in row-major order.
std::int64_t GridStride(const GridScheme& grid, std::size_t axis) {
  std::int64_t stride = 1;
  for (std::size_t a = axis + 1; a < grid.extents.size(); ++a) {
    stride *= grid.extents[a];
  }
  return stride;
}

void Fill(const GridScheme& grid, PositionWriter* out) {
  const std::size_t axes = grid.extents.size();
  const std::int64_t cells = GridStride(grid, 0) * grid.extents[0];
  const bool fractional = IsFractional(grid);
  // Number of cells of the last two axes. These cells may be ordered in blocks.
  const std::int64_t frame =
      axes < 2 ? cells : grid.extents[axes - 2] * grid.extents[axes - 1];
  for (std::size_t a = 0; a < axes; ++a) {
    const bool merged = grid.merge_size > 1 && a + 2 >= axes;
    const std::int64_t stride = GridStride(grid, a);
    const auto index = [&](std::int64_t cell) {
      return merged ? IndexInBlocks(cell % frame, grid.extents[axes - 1],
                                    grid.merge_size, a + 1 == axes)
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
