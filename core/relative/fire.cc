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

std::vector<double> Load(const ConstTensorView& tensor) {
  std::int64_t n = 1;
  for (const std::int64_t extent : tensor.shape) n *= extent;
  std::vector<double> values(n);
  LoadDoubles(tensor, 0, n, values.data());
  return values;
}

class FireRule final : public BiasTiles::Rule {
 public:
  explicit FireRule(const Fire& fire)
      : Rule(fire.b2->shape[0]),
        c_(fire.c),
        threshold_(fire.threshold),
        epsilon_(fire.epsilon),
        w1_(Load(*fire.w1)),
        b1_(Load(*fire.b1)),
        w2_(*fire.w2),
        b2_(*fire.b2) {}

  // Evaluating a hidden unit takes a nanosecond, and multiplying it by the
  // weight of a head takes a quarter of a nanosecond.
  std::int64_t Nanoseconds(std::int64_t queries,
                           std::int64_t keys) const override {
    return queries * keys * hidden() * (4 + heads()) / 4;
  }

  void Fill(const BiasTileWriter& writer) const override {
    const std::int64_t block = PanelBlock(hidden());  // columns at a time
    const BiasRange& tile = writer.tile;
    Scratch scratch = {std::vector<double>(block),
                       std::vector<double>(PanelsSize(block, hidden())),
                       std::vector<double>(hidden()),
                       std::vector<double>(block)};
    // psi of the block's distances, the greatest distance first. This distance
    // is from the last query to the first key. Rows overlap as in DistanceRule,
    // but each row has its own divisor.
    std::vector<long double> psi(2 * block - 1);
    for (std::int64_t row = 0; row < tile.query_length; row += block) {
      const std::int64_t rows = std::min(block, tile.query_length - row);
      for (std::int64_t column = 0; column < tile.key_length; column += block) {
        const std::int64_t n = std::min(block, tile.key_length - column);
        const std::int64_t last = tile.query_start + row + rows - 1;
        for (std::int64_t s = 0; s < rows + n - 1; ++s) {
          psi[s] = Psi(last - (tile.key_start + column) - s);
        }
        for (std::int64_t r = 0; r < rows; ++r) {
          const long double query = tile.query_start + row + r;
          const long double norm = Psi(std::max(query, threshold_)) + epsilon_;
          for (std::int64_t j = 0; j < n; ++j) {
            scratch.x[j] = static_cast<double>(psi[rows - 1 - r + j] / norm);
          }
          FillRow(writer, row + r, column, n, &scratch);
        }
      }
    }
  }

 private:
  // Scratch memory for one tile.
  struct Scratch {
    std::vector<double> x, units, w2, values;
  };

  std::int64_t hidden() const { return static_cast<std::int64_t>(b1_.size()); }

  // psi is evaluated in long double for two reasons. The logarithm of long
  // double is the same on every x86 CPU, but the logarithm of double depends on
  // the instruction set. Long double can represent even the smallest c *
  // threshold.
  long double Psi(long double distance) const {
    return std::log1p(std::fabs(c_ * distance));
  }

  void FillRow(const BiasTileWriter& writer, std::int64_t row,
               std::int64_t column, std::int64_t n, Scratch* scratch) const {
    for (std::int64_t k = 0; k < hidden(); ++k) {
      for (std::int64_t j = 0; j < n; ++j) {
        const double unit = w1_[k] * scratch->x[j] + b1_[k];
        scratch->units[PanelIndex(j, k, hidden())] =
            unit < 0 ? 0 : unit;  // keeps NaN
      }
    }
    for (std::int64_t head = 0; head < heads(); ++head) {
      LoadDoubles(w2_, head * hidden(), hidden(), scratch->w2.data());
      double* const values = scratch->values.data();
      DotPanels(scratch->w2.data(), scratch->units.data(), hidden(), n, values);
      const double b2 = ElementAsDouble(b2_, head);
      for (std::int64_t j = 0; j < n; ++j) values[j] += b2;
      writer.Put(head, row, column, n, values);
    }
  }

  const long double c_, threshold_, epsilon_;
  const std::vector<double> w1_, b1_;
  // These tensors are borrowed, not copied, because there may be many heads.
  const ConstTensorView w2_, b2_;
};

absl::Status ValidateNumbers(const Fire& fire) {
  const auto positive = [](const char* field, double value) {
    if (value == 0) return FieldRequired(field, "is 0; must be positive");
    if (value > 0 && std::isfinite(value)) return absl::OkStatus();
    return MustBe(field, value, "finite and positive");
  };
  RETURN_IF_ERROR(positive("c", fire.c));
  RETURN_IF_ERROR(positive("threshold", fire.threshold));
  if (fire.epsilon >= 0 && std::isfinite(fire.epsilon)) return absl::OkStatus();
  return MustBe("epsilon", fire.epsilon, "finite and >= 0");
}

absl::Status ValidateTensors(const Fire& fire) {
  RETURN_IF_ERROR(CheckTensor("w1", fire.w1, {{"hidden"}, {"", 1}}));
  const std::int64_t hidden = fire.w1->shape[0];
  RETURN_IF_ERROR(CheckWidth("w1.shape", "hidden", hidden));
  RETURN_IF_ERROR(CheckTensor("b1", fire.b1, {{"hidden", hidden}}));
  RETURN_IF_ERROR(CheckTensor("w2", fire.w2, {{"heads"}, {"hidden", hidden}}));
  return CheckTensor("b2", fire.b2, {{"heads", fire.w2->shape[0]}});
}

}  // namespace

absl::StatusOr<BiasRule> MakeRule(const Fire& fire) {
  RETURN_IF_ERROR(ValidateNumbers(fire));
  RETURN_IF_ERROR(ValidateTensors(fire));
  return std::make_shared<const FireRule>(fire);
}

}  // namespace posenc::core
