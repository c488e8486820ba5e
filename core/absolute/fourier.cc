#include "core/absolute/fourier.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace posenc::core {
namespace {

// The greatest element of B. With positions of 2^31, the angle 4 B x is at most
// 2^51 quarter turns, which is the kernel's limit.
constexpr double kLargest = 0x1p18;

// The greatest number of frequencies. Each tile of a table cuts all frequencies
// into pieces again (CutQuarterTurns()), which takes milliseconds for 65536
// frequencies.
constexpr std::int64_t kMostFrequencies = 65536;

}  // namespace

absl::Status ValidateFourier(const FourierFeatures& encoding) {
  if (!encoding.frequencies.has_value()) {
    return FieldRequired("frequencies",
                         "not given; must be a tensor [axes, dim / 2]");
  }
  const ConstTensorView& b = *encoding.frequencies;
  if (!IsFloating(b.dtype)) {
    return FieldInvalid("frequencies.dtype",
                        absl::StrCat("is ", DtypeName(b.dtype),
                                     "; must be float32, float16, bfloat16 or "
                                     "float64"));
  }
  if (b.shape.size() != 2 || b.shape[0] < 1 || b.shape[1] < 1) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, ErrorReason::kShapeMismatch,
        "frequencies.shape",
        absl::StrCat("is ", ShapeToString(b.shape),
                     "; must be [axes, dim / 2], both at least "
                     "1"),
        {{"expected", "[axes, dim / 2]"}, {"actual", ShapeToString(b.shape)}});
  }
  const std::int64_t count = b.shape[0] * b.shape[1];
  if (count > kMostFrequencies) {
    return FieldInvalid(
        "frequencies.shape",
        absl::StrCat("is ", ShapeToString(b.shape), ", ", count,
                     " elements; must be at most ", kMostFrequencies));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = ElementAsDouble(b, i);
    // The condition is a negation, because NaN must fail, too.
    if (!(std::fabs(value) <= kLargest)) {
      return FieldInvalid("frequencies",
                          absl::StrCat("element ", i, " is ", NumberText(value),
                                       "; must be within +-2^18 turns per "
                                       "position"));
    }
  }
  return absl::OkStatus();
}

TrigRows FourierRows(const FourierFeatures& encoding) {
  const ConstTensorView& b = *encoding.frequencies;
  QuarterTurnArrays frequencies;
  for (std::int64_t i = 0; i < b.shape[0] * b.shape[1]; ++i) {
    // B counts full circles. A product with 4 is exact, and pi is not needed.
    frequencies.Append(CutQuarterTurns(4 * ElementAsDouble(b, i)));
  }
  return TrigRows(
      encoding.cos_first ? SinusoidalOrder::kCosSin : SinusoidalOrder::kSinCos,
      2 * b.shape[1], b.shape[0], std::move(frequencies));
}

}  // namespace posenc::core
