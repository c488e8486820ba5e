#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/absolute/kinds.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace posenc::core {
namespace {

constexpr double kDefaultMaxPeriod = 10000;

double Frequency(const Timestep& encoding, std::int32_t i) {
  const long double steps =
      static_cast<long double>(encoding.dim / 2) -  // NOLINT: floor is meant
      encoding.downscale_freq_shift.value_or(0);
  return GeometricFrequency(encoding.max_period.value_or(kDefaultMaxPeriod),
                            i / steps, encoding.scale.value_or(1));
}

}  // namespace

absl::StatusOr<AbsoluteExtents> Validate(const Timestep& encoding) {
  RETURN_IF_ERROR(CheckSinusoidDim(encoding.dim));
  const double max_period = encoding.max_period.value_or(kDefaultMaxPeriod);
  if (!(max_period > 1) || !std::isfinite(max_period)) {
    return MustBe("max_period", max_period, "finite and greater than 1");
  }
  const double scale = encoding.scale.value_or(1);
  if (scale == 0 || !std::isfinite(scale)) {
    return MustBe("scale", scale,
                  "finite and not 0, which would make all timesteps equal");
  }
  const double shift = encoding.downscale_freq_shift.value_or(0);
  const std::int32_t n = encoding.dim / 2;
  if (!std::isfinite(shift)) {
    return MustBe("downscale_freq_shift", shift, "finite");
  }
  if (shift == n) {
    return FieldInvalid(
        "downscale_freq_shift",
        absl::StrCat("is ", NumberText(shift), ", and dim ", encoding.dim,
                     " has ", n, " frequencies; their exponents i / (", n,
                     " - ", NumberText(shift),
                     ") divide by zero, use another shift or more channels"));
  }
  // Frequencies are monotone in i, so all are in range if the first and the
  // last frequency are in range.
  for (const std::int32_t i : {0, n - 1}) {
    const double w = Frequency(encoding, i);
    const double magnitude = std::fabs(w);
    if (magnitude >= kMinFrequency && magnitude <= kMaxFrequency) continue;
    // If 1 < shift < n, the last frequency is below scale / max_period; if
    // shift > n, frequencies rise with i. So an error about the last frequency
    // names the shift if shift > 1.
    const bool steep = shift > 1;
    return FieldInvalid(
        i == 0  ? "scale"
        : steep ? "downscale_freq_shift"
                : "max_period",
        absl::StrCat("gives channel ", i, " the frequency ", NumberText(w),
                     "; must be 2^-900 to 2^20"));
  }
  return AbsoluteExtents{encoding.dim};
}

TrigRows RowsOf(const Timestep& encoding) {
  QuarterTurnArrays frequencies;
  for (std::int32_t i = 0; i < encoding.dim / 2; ++i) {
    frequencies.Append(SplitQuarterTurns(Frequency(encoding, i)));
  }
  return TrigRows(
      encoding.cos_first ? SinusoidalOrder::kCosSin : SinusoidalOrder::kSinCos,
      encoding.dim, 1, std::move(frequencies));
}

}  // namespace posenc::core
