#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/absolute/kinds.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace posenc::core {
namespace {

// The greatest magnitude of an element of B. With positions of 2^31, the angle
// 4 B x is at most 2^51 quarter turns, which is the kernel's limit.
constexpr double kLargest = 0x1p18;

// The greatest number of frequencies. Each request cuts all its frequencies
// into pieces (CutQuarterTurns()), which takes milliseconds for 65536
// frequencies, and each tile of a table copies the pieces.
constexpr std::int64_t kMostFrequencies = 65536;

}  // namespace

absl::StatusOr<AbsoluteExtents> Validate(const FourierFeatures& encoding) {
  RETURN_IF_ERROR(CheckTensor("frequencies", encoding.frequencies,
                              {{"axes"}, {"dim / 2"}}));
  const ConstTensorView& b = *encoding.frequencies;
  const std::int64_t count = b.shape[0] * b.shape[1];
  if (count > kMostFrequencies) {
    return FieldInvalid(
        "frequencies.shape",
        absl::StrCat("is ", ShapeToString(b.shape), ", ", count,
                     " elements; must be at most ", kMostFrequencies));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = ElementAsDouble(b, i);
    // The condition is negated so that it also rejects NaN.
    if (!(std::fabs(value) <= kLargest)) {
      return FieldInvalid("frequencies",
                          absl::StrCat("element ", i, " is ", NumberText(value),
                                       "; must be within +-2^18 turns per "
                                       "position"));
    }
  }
  return AbsoluteExtents{2 * b.shape[1], static_cast<int>(b.shape[0])};
}

TrigRows RowsOf(const FourierFeatures& encoding) {
  const ConstTensorView& b = *encoding.frequencies;
  QuarterTurnArrays frequencies;
  for (std::int64_t i = 0; i < b.shape[0] * b.shape[1]; ++i) {
    // B counts full circles, so 4 B counts quarter turns. The product with 4 is
    // exact.
    frequencies.Append(CutQuarterTurns(4 * ElementAsDouble(b, i)));
  }
  return TrigRows(
      encoding.cos_first ? SinusoidalOrder::kCosSin : SinusoidalOrder::kSinCos,
      2 * b.shape[1], b.shape[0], std::move(frequencies));
}

}  // namespace posenc::core
