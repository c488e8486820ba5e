#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/relative/check.h"
#include "core/relative/panels.h"
#include "core/relative/rule.h"

namespace posenc::core {
namespace {

class UntiedRule final : public BiasTiles::Rule {
 public:
  explicit UntiedRule(const UntiedPositions& untied)
      : Rule(untied.position_queries->shape[0]),
        scale_(untied.scale.value_or(1)),
        queries_(*untied.position_queries),
        keys_(*untied.position_keys) {}

  absl::Status CheckRange(const BiasRange& range) const override {
    return CheckInside(range, queries_.shape[1], "bias.untied_positions");
  }

  // A product of a query and a key takes a quarter of a nanosecond for each
  // channel, and loading a channel takes a nanosecond.
  std::int64_t Nanoseconds(std::int64_t queries,
                           std::int64_t keys) const override {
    return heads() * queries_.shape[2] * (queries * keys / 4 + queries + keys);
  }

  void Fill(const BiasTileWriter& writer) const override {
    const BiasRange& tile = writer.tile;
    const std::int64_t rows = queries_.shape[1];
    const std::int64_t width = queries_.shape[2];
    const std::int64_t block = PanelBlock(width);  // keys at a time
    std::vector<double> channels(width), values(block);
    std::vector<double> panels(PanelsSize(block, width));
    for (std::int64_t head = 0; head < heads(); ++head) {
      for (std::int64_t column = 0; column < tile.key_length; column += block) {
        const std::int64_t n = std::min(block, tile.key_length - column);
        for (std::int64_t j = 0; j < n; ++j) {
          LoadDoubles(keys_,
                      (head * rows + tile.key_start + column + j) * width,
                      width, channels.data());
          ArrangePanels(channels.data(), 1, width,
                        panels.data() + PanelIndex(j, 0, width));
        }
        for (std::int64_t row = 0; row < tile.query_length; ++row) {
          LoadDoubles(queries_, (head * rows + tile.query_start + row) * width,
                      width, channels.data());
          DotPanels(channels.data(), panels.data(), width, n, values.data());
          for (std::int64_t j = 0; j < n; ++j) values[j] *= scale_;
          writer.Put(head, row, column, n, values.data());
        }
      }
    }
  }

 private:
  const double scale_;
  const ConstTensorView queries_, keys_;
};

}  // namespace

absl::StatusOr<BiasRule> MakeRule(const UntiedPositions& untied) {
  if (!std::isfinite(untied.scale.value_or(1))) {
    return MustBe("scale", *untied.scale, "finite");
  }
  RETURN_IF_ERROR(CheckTensor("position_queries", untied.position_queries,
                              {{"heads"}, {"rows"}, {"D"}}));
  const Shape& shape = untied.position_queries->shape;
  RETURN_IF_ERROR(CheckWidth("position_queries.shape", "D", shape[2]));
  RETURN_IF_ERROR(
      CheckTensor("position_keys", untied.position_keys,
                  {{"heads", shape[0]}, {"rows", shape[1]}, {"D", shape[2]}}));
  return std::make_shared<const UntiedRule>(untied);
}

}  // namespace posenc::core
