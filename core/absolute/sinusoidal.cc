#include "core/absolute/sinusoidal.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/absolute/encoding.h"
#include "core/absolute/trig_rows.h"
#include "core/base/error.h"

namespace posenc::core {
namespace {

constexpr double kDefaultBase = 10000;  // the paper's

}  // namespace

absl::Status CheckSinusoidDim(std::int32_t dim) {
  if (dim >= 2 && dim <= kMaxAbsoluteDim) return absl::OkStatus();
  return FieldInvalid(
      "dim", absl::StrCat("is ", dim, "; must be 2 to ", kMaxAbsoluteDim));
}

absl::Status CheckSinusoidBase(absl::string_view field, double base) {
  if (base > 1 && base <= 1 / kMinFrequency) return absl::OkStatus();
  return FieldInvalid(field,
                      absl::StrCat("is ", NumberText(base),
                                   "; must be greater than 1, and at most "
                                   "2^900"));
}

absl::Status ValidateSinusoidal(const Sinusoidal& encoding) {
  const absl::Status dim = CheckSinusoidDim(encoding.dim);
  if (!dim.ok()) return dim;
  absl::Status base =
      CheckSinusoidBase("base", encoding.base.value_or(kDefaultBase));
  if (!base.ok()) return base;
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
  return absl::OkStatus();
}

TrigRows SinusoidalRows(const Sinusoidal& encoding) {
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

absl::Status BuildSinusoidal(const Sinusoidal& encoding,
                             const TokenPositions& positions,
                             const TensorView& table) {
  if (absl::Status valid = ValidateSinusoidal(encoding); !valid.ok()) {
    return valid;
  }
  return BuildAbsolute(encoding, &positions, table);
}

}  // namespace posenc::core
