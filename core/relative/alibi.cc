#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/relative/check.h"
#include "core/relative/rule.h"

namespace posenc::core {
namespace {

constexpr double kDefaultMaxBias = 8;  // the paper's

double Slope(std::int32_t heads, double max_bias, std::int64_t head) {
  const std::int64_t power = std::bit_floor(static_cast<std::uint32_t>(heads));
  // The first `power` heads use the steps of a model with `power` heads. The
  // other heads use the odd steps of a model with 2 * power heads.
  const long double step =
      head < power
          ? static_cast<long double>(head + 1) / power
          : static_cast<long double>(2 * (head - power) + 1) / (2 * power);
  return static_cast<double>(std::exp2(-max_bias * step));
}

class AlibiRule final : public DistanceRule {
 public:
  explicit AlibiRule(const Alibi& alibi) : alibi_(alibi) {}

  std::int64_t heads() const override { return alibi_.heads; }

 protected:
  void Head(std::int64_t head, const double* distance, std::int64_t n,
            double* values) const override {
    // Each strip computes its slope again, so that no list of the slopes of all
    // heads is kept.
    const double slope =
        alibi_.slopes.empty()
            ? Slope(alibi_.heads, alibi_.max_bias.value_or(kDefaultMaxBias),
                    head)
            : alibi_.slopes[head];
    // -slope * distance would be -0 at distance 0.
    for (std::int64_t s = 0; s < n; ++s) values[s] = 0 - slope * distance[s];
  }

 private:
  const Alibi alibi_;
};

absl::Status Validate(const Alibi& alibi) {
  if (absl::Status valid = CheckHeads(alibi.heads); !valid.ok()) {
    return valid;
  }
  if (alibi.max_bias.has_value() &&
      !(*alibi.max_bias > 0 && std::isfinite(*alibi.max_bias))) {
    return FieldInvalid("max_bias",
                        absl::StrCat(NumberText(*alibi.max_bias),
                                     "; must be finite and positive"));
  }
  if (alibi.slopes.empty()) return absl::OkStatus();
  if (alibi.max_bias.has_value()) {
    return FieldInvalid(
        "max_bias",
        absl::StrCat(NumberText(*alibi.max_bias), ", and ", alibi.slopes.size(),
                     " slopes are given; unset one of them"));
  }
  if (alibi.slopes.size() != static_cast<std::size_t>(alibi.heads)) {
    return FieldInvalid("slopes",
                        absl::StrCat("has ", alibi.slopes.size(), " for ",
                                     alibi.heads, " heads; give one per head"));
  }
  for (std::size_t h = 0; h < alibi.slopes.size(); ++h) {
    if (!std::isfinite(alibi.slopes[h])) {
      return FieldInvalid(
          absl::StrCat("slopes[", h, "]"),
          absl::StrCat(NumberText(alibi.slopes[h]), "; must be finite"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<double> AlibiSlopes(std::int32_t heads, double max_bias) {
  std::vector<double> slopes;
  slopes.reserve(heads);
  for (std::int32_t h = 0; h < heads; ++h) {
    slopes.push_back(Slope(heads, max_bias, h));
  }
  return slopes;
}

absl::StatusOr<BiasRule> MakeRule(const Alibi& alibi) {
  if (absl::Status valid = Validate(alibi); !valid.ok()) return valid;
  return std::make_unique<AlibiRule>(alibi);
}

}  // namespace posenc::core
