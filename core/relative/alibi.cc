#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/relative/check.h"
#include "core/relative/rule.h"

namespace posenc::core {
namespace {

constexpr double kDefaultMaxBias = 8;  // as in ALiBi's paper

// If the number of heads is a power of two, the slopes are a geometric
// sequence. Other numbers of heads have the slopes of the next smaller power of
// two, followed by every second slope of the next larger power of two.
double Slope(std::int32_t heads, double max_bias, std::int64_t head) {
  const std::int64_t power = std::bit_floor(static_cast<std::uint32_t>(heads));
  const long double step =
      head < power
          ? static_cast<long double>(head + 1) / power
          : static_cast<long double>(2 * (head - power) + 1) / (2 * power);
  return static_cast<double>(std::exp2(-max_bias * step));
}

absl::Status Validate(const Alibi& alibi) {
  RETURN_IF_ERROR(CheckHeads(alibi.heads));
  if (alibi.max_bias.has_value() &&
      !(*alibi.max_bias > 0 && std::isfinite(*alibi.max_bias))) {
    return MustBe("max_bias", *alibi.max_bias, "finite and positive");
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
      return MustBe(absl::StrCat("slopes[", h, "]"), alibi.slopes[h], "finite");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BiasRule> MakeRule(const Alibi& alibi) {
  RETURN_IF_ERROR(Validate(alibi));
  const auto of_head = [alibi](std::int64_t head, const double* distance,
                               std::int64_t n, double* values) {
    // Each strip computes its slope again, so that no list of the slopes of all
    // heads is kept.
    const double slope =
        alibi.slopes.empty()
            ? Slope(alibi.heads, alibi.max_bias.value_or(kDefaultMaxBias), head)
            : alibi.slopes[head];
    // Subtracts from 0, because -slope * distance would be -0 at distance 0.
    for (std::int64_t s = 0; s < n; ++s) values[s] = 0 - slope * distance[s];
  };
  return DistanceRule({alibi.heads, of_head});
}

}  // namespace posenc::core
