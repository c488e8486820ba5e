#include <utility>

#include "absl/strings/str_cat.h"
#include "core/absolute/kinds.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace posenc::core {
namespace {

constexpr double kDefaultBase = 10000;  // as in arXiv:1706.03762

}  // namespace

absl::Status CheckSinusoidDim(std::int32_t dim) {
  if (dim >= 2 && dim <= kMaxAbsoluteDim) return absl::OkStatus();
  return MustBe("dim", dim, absl::StrCat("2 to ", kMaxAbsoluteDim));
}

absl::Status CheckSinusoidBase(const std::optional<double>& base) {
  if (!base.has_value() || (*base > 1 && *base <= 1 / kMinFrequency)) {
    return absl::OkStatus();
  }
  return MustBe("base", *base, "greater than 1, and at most 2^900");
}

absl::StatusOr<AbsoluteExtents> Validate(const Sinusoidal& encoding) {
  RETURN_IF_ERROR(CheckSinusoidDim(encoding.dim));
  RETURN_IF_ERROR(CheckSinusoidBase(encoding.base));
  if (encoding.order == SinusoidalOrder::kUnspecified) {
    return FieldRequired("order",
                         "not set; must be INTERLEAVED, SIN_COS or COS_SIN");
  }
  if (encoding.endpoint && encoding.dim < 4) {
    return FieldInvalid("endpoint",
                        absl::StrCat("dim is ", encoding.dim,
                                     "; frequencies that end at 1/base need at "
                                     "least 4 channels"));
  }
  if (encoding.odd_dim_sine &&
      encoding.order != SinusoidalOrder::kInterleaved) {
    return FieldInvalid("odd_dim_sine",
                        "set; only the interleaved order has an unpaired sine");
  }
  if (encoding.odd_dim_sine && encoding.endpoint && encoding.dim % 2 != 0) {
    return FieldInvalid("odd_dim_sine",
                        "set with endpoint; the last paired frequency is "
                        "already 1/base, unset one of them");
  }
  return AbsoluteExtents{encoding.dim};
}

TrigRows RowsOf(const Sinusoidal& encoding) {
  const double base = encoding.base.value_or(kDefaultBase);
  const std::int32_t n = encoding.dim / 2;
  const std::int32_t sines =
      n + (encoding.odd_dim_sine && encoding.dim % 2 != 0 ? 1 : 0);
  QuarterTurnArrays frequencies;
  for (std::int32_t i = 0; i < sines; ++i) {
    const long double exponent =
        encoding.endpoint ? static_cast<long double>(i) / (n - 1)
                          : 2 * static_cast<long double>(i) / encoding.dim;
    frequencies.Append(SplitQuarterTurns(GeometricFrequency(base, exponent)));
  }
  TrigRows rows(encoding.order, encoding.dim, 1, std::move(frequencies));
  if (encoding.padding_position.has_value()) {
    rows.set_zero_position(static_cast<double>(*encoding.padding_position));
  }
  return rows;
}

}  // namespace posenc::core
