#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/relative/check.h"
#include "core/relative/elements.h"
#include "core/relative/rule.h"

namespace posenc::core {
namespace {

class UntiedRule final : public BiasTiles::Rule {
 public:
  explicit UntiedRule(const UntiedPositions& untied)
      : scale_(untied.scale.value_or(1)),
        queries_(*untied.position_queries),
        keys_(*untied.position_keys) {}

  std::int64_t heads() const override { return queries_.shape[0]; }
  absl::Status CheckRange(const BiasRange& range) const override {
    return CheckInside(range, queries_.shape[1], "bias.untied_positions");
  }

  void Fill(const BiasTileWriter& writer) const override {
    constexpr std::int64_t kBlock = 128;  // keys at a time
    const BiasRange& tile = writer.tile;
    const std::int64_t rows = queries_.shape[1];
    const std::int64_t width = queries_.shape[2];
    std::vector<double> keys(kBlock * width), query(width), values(kBlock);
    std::vector<double> panels(PanelsSize(kBlock, width));
    for (std::int64_t head = 0; head < heads(); ++head) {
      for (std::int64_t column = 0; column < tile.key_length;
           column += kBlock) {
        const std::int64_t n = std::min(kBlock, tile.key_length - column);
        LoadDoubles(keys_, (head * rows + tile.key_start + column) * width,
                    n * width, keys.data());
        ArrangePanels(keys.data(), n, width, panels.data());
        for (std::int64_t row = 0; row < tile.query_length; ++row) {
          LoadDoubles(queries_, (head * rows + tile.query_start + row) * width,
                      width, query.data());
          DotPanels(query.data(), panels.data(), width, n, values.data());
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
    return FieldInvalid(
        "scale", absl::StrCat(NumberText(*untied.scale), "; must be finite"));
  }
  if (absl::Status valid =
          CheckTensor("position_queries", untied.position_queries,
                      {{"heads"}, {"rows"}, {"D"}});
      !valid.ok()) {
    return valid;
  }
  const Shape& shape = untied.position_queries->shape;
  if (absl::Status valid = CheckTensor(
          "position_keys", untied.position_keys,
          {{"heads", shape[0]}, {"rows", shape[1]}, {"D", shape[2]}});
      !valid.ok()) {
    return valid;
  }
  return std::make_unique<UntiedRule>(untied);
}

}  // namespace posenc::core
