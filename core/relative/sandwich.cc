#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/angle/cos_sin_row.h"
#include "core/angle/quarter_turns.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/relative/check.h"
#include "core/relative/rule.h"

namespace posenc::core {
namespace {

constexpr std::int32_t kMaxDim = 65536;  // bounds the work per distance

QuarterTurnArrays Frequencies(std::int32_t dim) {
  QuarterTurnArrays frequencies;
  for (std::int32_t n = 1; n <= dim / 2; ++n) {
    const long double frequency = std::pow(10000.0L, -2.0L * n / dim);
    const auto rounded = static_cast<double>(frequency);
    QuarterTurns turns = SplitQuarterTurns(rounded);
    // Adds the rounding error of the float64 frequency, which matters at
    // distances near 2^32.
    turns.lo += static_cast<double>((frequency - rounded) * 2 /
                                    std::numbers::pi_v<long double>);
    frequencies.Append(turns);
  }
  return frequencies;
}

}  // namespace

absl::StatusOr<BiasRule> MakeRule(const Sandwich& sandwich) {
  RETURN_IF_ERROR(CheckHeads(sandwich.heads));
  if (sandwich.dim < 2 || sandwich.dim % 2 != 0 || sandwich.dim > kMaxDim) {
    const std::string fact =
        absl::StrCat("is ", sandwich.dim, "; must be even, 2 .. ", kMaxDim,
                     ", such as the paper's 128");
    return sandwich.dim == 0 ? FieldRequired("dim", fact)
                             : FieldInvalid("dim", fact);
  }
  DistanceValues values;
  values.heads = sandwich.heads;
  values.head = [heads = sandwich.heads](std::int64_t head,
                                         const double* shared, std::int64_t n,
                                         double* biases) {
    const double compression = 8.0 * static_cast<double>(head + 1) / heads;
    for (std::int64_t s = 0; s < n; ++s) biases[s] = shared[s] / compression;
  };
  values.shared = [frequencies = Frequencies(sandwich.dim)](
                      std::int64_t first, std::int64_t n, double* shared) {
    std::vector<double> cosines(frequencies.size()), sines(frequencies.size());
    const double factor = 1;
    for (std::int64_t s = 0; s < n; ++s) {
      const auto distance = static_cast<double>(first - s);
      FillCosSinRow(frequencies.Row(&distance, &factor), cosines.data(),
                    sines.data());
      double sum = 0;
      for (const double cosine : cosines) sum += cosine - 1;
      shared[s] = sum;
    }
  };
  // Each sine and each cosine takes two nanoseconds.
  values.nanoseconds = 4 * (sandwich.dim / 2);
  return DistanceRule(std::move(values));
}

}  // namespace posenc::core
