#include "core/positions/vision_positions.h"

#include <algorithm>
#include <numbers>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace posenc::core {
namespace {

// The largest extent on an axis. Up to this extent, positions fit in int32, and
// the product of three extents is below 2^62.
constexpr std::int64_t kMaxExtent = 1 << 20;
constexpr std::int64_t kMaxText = 1 << 30;

bool IsFractional(const TowerGrid& tower) {
  return tower.centers || tower.window > 0;
}

absl::Status CheckExtent(const std::string& field, std::int64_t extent,
                         std::int64_t divisor) {
  if (extent < 1 || extent > kMaxExtent) {
    return MustBe(field, extent, absl::StrCat("1 to ", kMaxExtent));
  }
  if (extent % divisor != 0) {
    return FieldInvalid(
        field,
        absl::StrCat(extent,
                     " patches; must be divisible by the tower's merge_size, "
                     "which is ",
                     divisor));
  }
  return absl::OkStatus();
}

std::int64_t TokensOf(const TowerGrid& tower, const PatchGrid& grid) {
  return tower.leading + grid.time * grid.height * grid.width + tower.trailing;
}

// The index of patch p of a grid on one axis.
std::int64_t IndexOf(const TowerGrid& tower, const PatchGrid& grid,
                     GridAxis axis, std::int64_t p) {
  if (axis == GridAxis::kStill) return 0;
  const std::int64_t frame = grid.height * grid.width;
  if (axis == GridAxis::kTime) return p / frame;
  return IndexInBlocks(p % frame, grid.width, tower.merge_size,
                       axis == GridAxis::kWidth);
}

float FractionOf(const TowerGrid& tower, const PatchGrid& grid, GridAxis axis,
                 std::int64_t index) {
  if (!tower.centers) {
    const double scale =
        static_cast<double>(tower.window) / static_cast<double>(grid.width);
    return static_cast<float>(index) * static_cast<float>(scale);
  }
  const std::int64_t extent =
      axis == GridAxis::kHeight ? grid.height : grid.width;
  const float center =
      (static_cast<float>(index) + 0.5F) / static_cast<float>(extent);
  return static_cast<float>(2 * std::numbers::pi) * (2 * center - 1);
}

// The position of index 0 on an axis, after `earlier` grids.
std::int64_t OriginOf(const VisionScheme& scheme, const PatchGrid& grid,
                      GridAxis axis, std::int64_t earlier) {
  const TowerGrid& tower = scheme.tower;
  if (axis == GridAxis::kStill) return 0;
  if (axis == GridAxis::kTime) {
    return (tower.text == TextTokens::kOnFirstAxis ? scheme.text_tokens : 0) +
           (tower.counts_grids ? earlier : 0);
  }
  const std::int64_t extent =
      axis == GridAxis::kHeight ? grid.height : grid.width;
  return tower.centered ? extent / 2 - extent : tower.first;
}

// The position of the first text token on axis a; -1 if all text tokens are at
// 0.
std::int64_t FirstTextPosition(const VisionScheme& scheme, std::size_t a) {
  switch (scheme.tower.text) {
    case TextTokens::kOnFirstAxis:
      return a == 0 ? 0 : -1;
    case TextTokens::kOnLastAxis:
      return a + 1 == scheme.tower.axes.size() ? 0 : -1;
    case TextTokens::kPastGrid: {
      std::int64_t half = 0;
      for (const PatchGrid& grid : scheme.grids) {
        half = std::max({half, grid.height / 2, grid.width / 2});
      }
      return half;
    }
    default:
      return -1;
  }
}

}  // namespace

std::int64_t IndexInBlocks(std::int64_t cell, std::int64_t width,
                           std::int64_t merge, bool column) {
  const std::int64_t block = cell / (merge * merge);
  const std::int64_t within = cell % (merge * merge);
  const std::int64_t blocks = width / merge;
  return column ? block % blocks * merge + within % merge
                : block / blocks * merge + within / merge;
}

absl::StatusOr<PositionExtents> Validate(const VisionScheme& scheme) {
  if (scheme.grids.empty()) {
    return FieldRequired("vision.grids",
                         "empty; give height and width of each image");
  }
  if (scheme.text_tokens < 0 || scheme.text_tokens > kMaxText) {
    return MustBe("vision.text_tokens", scheme.text_tokens, "0 to 2^30");
  }
  if (scheme.text_tokens > 0 && scheme.tower.text == TextTokens::kNone) {
    return FieldInvalid("vision.text_tokens",
                        absl::StrCat(scheme.text_tokens,
                                     "; the tower's patches come without "
                                     "text, leave it unset"));
  }
  std::int64_t tokens = scheme.text_tokens;
  for (std::size_t g = 0; g < scheme.grids.size(); ++g) {
    const PatchGrid& grid = scheme.grids[g];
    const std::string field = absl::StrCat("vision.grids[", g, "]");
    const std::int64_t merge = scheme.tower.merge_size;
    RETURN_IF_ERROR(CheckExtent(absl::StrCat(field, ".time"), grid.time, 1));
    RETURN_IF_ERROR(
        CheckExtent(absl::StrCat(field, ".height"), grid.height, merge));
    RETURN_IF_ERROR(
        CheckExtent(absl::StrCat(field, ".width"), grid.width, merge));
    tokens += TokensOf(scheme.tower, grid);
    if (tokens > (std::int64_t{1} << 60)) {
      return FieldInvalid(field, "more than 2^60 tokens up to here");
    }
  }
  return PositionExtents{
      IsFractional(scheme.tower) ? Dtype::kFloat32 : Dtype::kInt32,
      {static_cast<std::int64_t>(scheme.tower.axes.size()), tokens}};
}

void Fill(const VisionScheme& scheme, PositionWriter* out) {
  const TowerGrid& tower = scheme.tower;
  for (std::size_t a = 0; a < tower.axes.size(); ++a) {
    const GridAxis axis = tower.axes[a];
    const std::int64_t text = FirstTextPosition(scheme, a);
    if (text < 0) {
      out->PutCopies(0, scheme.text_tokens);
    } else {
      out->PutRun(text, scheme.text_tokens);
    }
    std::int64_t earlier = 0;  // number of grids before this grid
    for (const PatchGrid& grid : scheme.grids) {
      // The int32 0 is also valid as float32, because its bits are the same.
      out->PutCopies(0, tower.leading);
      const std::int64_t patches = grid.time * grid.height * grid.width;
      if (IsFractional(tower)) {
        out->Put(patches, [&](std::int64_t p) {
          return FractionOf(tower, grid, axis, IndexOf(tower, grid, axis, p));
        });
      } else {
        const std::int64_t origin = OriginOf(scheme, grid, axis, earlier);
        out->Put(patches, [&](std::int64_t p) {
          return static_cast<std::int32_t>(IndexOf(tower, grid, axis, p) +
                                           origin);
        });
      }
      ++earlier;
      out->PutCopies(0, tower.trailing);
    }
  }
}

}  // namespace posenc::core
