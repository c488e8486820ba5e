#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/angle/cos_sin_row.h"
#include "core/angle/quarter_turns.h"
#include "core/base/error.h"
#include "core/relative/check.h"
#include "core/relative/rule.h"

namespace posenc::core {
namespace {

constexpr std::int32_t kMaxDim = 65536;  // bounds the work per distance

class SandwichRule final : public DistanceRule {
 public:
  explicit SandwichRule(const Sandwich& sandwich) : heads_(sandwich.heads) {
    for (std::int32_t n = 1; n <= sandwich.dim / 2; ++n) {
      const long double frequency =
          std::pow(10000.0L, -2.0L * n / sandwich.dim);
      const auto rounded = static_cast<double>(frequency);
      QuarterTurns turns = SplitQuarterTurns(rounded);
      // Adds the rounding error of the float64 frequency, which matters at
      // distances near 2^32.
      turns.lo += static_cast<double>((frequency - rounded) * 2 /
                                      std::numbers::pi_v<long double>);
      frequencies_.Append(turns);
    }
  }

  std::int64_t heads() const override { return heads_; }
  // A distance takes two nanoseconds for each of its sines and cosines.
  std::int64_t Nanoseconds(std::int64_t queries,
                           std::int64_t keys) const override {
    return 4 * static_cast<std::int64_t>(frequencies_.size()) *
           (queries + keys);
  }

 protected:
  void Shared(std::int64_t first, std::int64_t n,
              double* shared) const override {
    std::vector<double> cosines(frequencies_.size()),
        sines(frequencies_.size());
    const double factor = 1;
    for (std::int64_t s = 0; s < n; ++s) {
      const auto distance = static_cast<double>(first - s);
      simd::TrigRow row = {};
      row.position = &distance;
      frequencies_.Point(0, &row);
      row.axes = 1;
      row.n = frequencies_.size();
      row.factor = &factor;
      FillCosSinRow(row, cosines.data(), sines.data());
      double sum = 0;
      for (const double cosine : cosines) sum += cosine - 1;
      shared[s] = sum;
    }
  }
  void Head(std::int64_t head, const double* shared, std::int64_t n,
            double* values) const override {
    const double compression = 8.0 * static_cast<double>(head + 1) / heads_;
    for (std::int64_t s = 0; s < n; ++s) values[s] = shared[s] / compression;
  }

 private:
  const std::int32_t heads_;
  QuarterTurnArrays frequencies_;
};

}  // namespace

absl::StatusOr<BiasRule> MakeRule(const Sandwich& sandwich) {
  if (absl::Status valid = CheckHeads(sandwich.heads); !valid.ok()) {
    return valid;
  }
  if (sandwich.dim < 2 || sandwich.dim % 2 != 0 || sandwich.dim > kMaxDim) {
    const std::string fact =
        absl::StrCat("is ", sandwich.dim, "; must be even, 2 .. ", kMaxDim,
                     ", such as the paper's 128");
    return sandwich.dim == 0 ? FieldRequired("dim", fact)
                             : FieldInvalid("dim", fact);
  }
  return std::make_unique<SandwichRule>(sandwich);
}

}  // namespace posenc::core
