#include "core/absolute/sinusoidal.h"

#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/rope/turns.h"
#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

constexpr double kDefaultBase = 10000;  // the paper's

// Frequencies of the sines, in quarter turns; an unpaired sine has one more
// than there are cosines.
struct Ladder {
  std::vector<double> hi, mid, lo;
};

Ladder MakeLadder(const Sinusoidal& encoding, std::size_t sines) {
  const long double log_base =
      std::log(static_cast<long double>(encoding.base.value_or(kDefaultBase)));
  const std::int32_t n = encoding.dim / 2;
  Ladder ladder;
  for (std::size_t i = 0; i < sines; ++i) {
    const long double exponent =
        encoding.endpoint ? static_cast<long double>(i) / (n - 1)
                          : 2 * static_cast<long double>(i) / encoding.dim;
    const Turns turns =
        SplitTurns(static_cast<double>(std::exp(-exponent * log_base)));
    ladder.hi.push_back(turns.hi);
    ladder.mid.push_back(turns.mid);
    ladder.lo.push_back(turns.lo);
  }
  return ladder;
}

}  // namespace

absl::Status ValidateSinusoidal(const Sinusoidal& encoding) {
  if (encoding.dim < 2) {
    return FieldInvalid("dim",
                        absl::StrCat(encoding.dim, "; must be at least 2"));
  }
  const double base = encoding.base.value_or(kDefaultBase);
  if (!(base > 1) || !std::isfinite(base)) {
    return FieldInvalid(
        "base", absl::StrCat(base, "; must be finite and greater than 1"));
  }
  if (encoding.order == SinusoidalOrder::kUnspecified) {
    return FieldRequired("order", "not set; say where sines and cosines go");
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

absl::Status BuildSinusoidal(const Sinusoidal& encoding,
                             const TokenPositions& positions,
                             const TensorView& table) {
  if (absl::Status valid = ValidateSinusoidal(encoding); !valid.ok()) {
    return valid;
  }
  if (!IsFloating(table.dtype)) {
    return FieldInvalid("dtype",
                        absl::StrCat(DtypeName(table.dtype),
                                     " cannot hold sines; use float32, "
                                     "float16, bfloat16 or float64"));
  }
  const std::size_t dim = encoding.dim;
  const std::size_t n = dim / 2;
  const std::size_t sines = n + (encoding.odd_dim_sine && dim % 2 != 0 ? 1 : 0);
  const Ladder ladder = MakeLadder(encoding, sines);
  const bool interleaved = encoding.order == SinusoidalOrder::kInterleaved;
  const bool cos_first = encoding.order == SinusoidalOrder::kCosSin;
  const std::size_t step = interleaved ? 2 : 1;
  const std::size_t sin_start = cos_first ? n : 0;
  const std::size_t cos_start = interleaved ? 1 : (cos_first ? 0 : n);

  // float32 values are rounded once from the exact ones by the kernel; the
  // others once from float64.
  const bool single = table.dtype == Dtype::kFloat32;
  std::vector<float> cos32(sines), sin32(sines);
  std::vector<double> cos64(sines), sin64(sines);
  const double amplitude = 1;
  const std::int64_t rows = positions.tokens();
  for (std::int64_t t = 0; t < rows; ++t) {
    const double position = positions.at(0, 0, t);
    const std::int64_t row = t * static_cast<std::int64_t>(dim);
    if (encoding.padding_position.has_value() &&
        position == static_cast<double>(*encoding.padding_position)) {
      for (std::size_t c = 0; c < dim; ++c) StoreDouble(0, table, row + c);
      continue;
    }
    simd::TrigRow trig = {};
    trig.position = &position;
    trig.turns_hi = ladder.hi.data();
    trig.turns_mid = ladder.mid.data();
    trig.turns_lo = ladder.lo.data();
    trig.axes = 1;
    trig.n = sines;
    trig.amplitude = &amplitude;
    if (single) {
      simd::ActiveKernels().trig_row_f32(trig, cos32.data(), sin32.data());
    } else {
      simd::ActiveKernels().trig_row_f64(trig, cos64.data(), sin64.data());
    }
    for (std::size_t i = 0; i < sines; ++i) {
      StoreDouble(single ? sin32[i] : sin64[i], table,
                  row + sin_start + i * step);
    }
    for (std::size_t i = 0; i < n; ++i) {
      StoreDouble(single ? cos32[i] : cos64[i], table,
                  row + cos_start + i * step);
    }
    if (dim % 2 != 0 && sines == n) StoreDouble(0, table, row + dim - 1);
  }
  return absl::OkStatus();
}

}  // namespace posenc::core
