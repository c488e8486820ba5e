#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/relative/rule.h"

namespace posenc::core {
namespace {

class GridRule final : public BiasTiles::Rule {
 public:
  explicit GridRule(const GridIndex& grid) : Rule(1, true), grid_(grid) {
    for (const std::int32_t extent : grid.extents) cells_ *= extent;
  }

  absl::Status CheckRange(const BiasRange& range) const override {
    return CheckInside(
        range, cells_,
        absl::StrCat("a grid of [", absl::StrJoin(grid_.extents, ", "), "]"));
  }
  void Fill(const BiasTileWriter& writer) const override {
    constexpr std::int64_t kColumns = 256;  // columns at a time
    const BiasRange& tile = writer.tile;
    // The index for i = j. All other indices are relative to this index.
    const std::int64_t middle = Weight(cells_ - 1);
    std::int64_t keys[kColumns];
    double values[kColumns];
    for (std::int64_t column = 0; column < tile.key_length;
         column += kColumns) {
      const std::int64_t n = std::min(kColumns, tile.key_length - column);
      for (std::int64_t c = 0; c < n; ++c) {
        keys[c] = Weight(tile.key_start + column + c);
      }
      for (std::int64_t row = 0; row < tile.query_length; ++row) {
        const std::int64_t query = middle + Weight(tile.query_start + row);
        for (std::int64_t c = 0; c < n; ++c) {
          values[c] = static_cast<double>(query - keys[c]);
        }
        writer.Put(0, row, column, n, values);
      }
    }
  }

 private:
  // The index is linear in the coordinates, so each cell contributes its own
  // weight: index(i, j) = Weight(i) - Weight(j) + Weight(last cell).
  std::int64_t Weight(std::int64_t cell) const {
    std::int64_t weight = 0, stride = 1;
    for (std::size_t a = grid_.extents.size(); a-- > 0;) {
      const std::int64_t extent = grid_.extents[a];
      weight += cell % extent * stride;
      cell /= extent;
      stride *= 2 * extent - 1;
    }
    return weight;
  }

  const GridIndex grid_;
  std::int64_t cells_ = 1;
};

absl::StatusOr<BiasRule> Make(std::monostate) {
  return FieldRequired("", "has no rule; set clip, deberta or grid");
}

absl::StatusOr<BiasRule> Make(const ClippedDistance& clip) {
  RETURN_IF_ERROR(Prefixed("clip", ValidateClipped(clip)));
  return IndexRule(
      [clip](std::int64_t distance) { return ClippedIndex(clip, -distance); });
}

absl::StatusOr<BiasRule> Make(const DebertaBuckets& buckets) {
  RETURN_IF_ERROR(Prefixed("deberta", ValidateDeberta(buckets)));
  return IndexRule(DebertaIndex(buckets));
}

absl::StatusOr<BiasRule> Make(const GridIndex& grid) {
  RETURN_IF_ERROR(Prefixed("grid", ValidateGridIndex(grid)));
  return std::make_shared<const GridRule>(grid);
}

}  // namespace

absl::StatusOr<BiasRule> MakeRule(const RelativeIndex& index) {
  return std::visit([](const auto& rule) { return Make(rule); }, index.rule);
}

}  // namespace posenc::core
