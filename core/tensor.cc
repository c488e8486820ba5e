#include "core/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/error.h"

namespace posenc::core {
namespace {

template <typename T>
T Load(const void* data, std::int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * sizeof(T),
              sizeof(T));
  return value;
}

template <typename T>
void Store(T value, void* data, std::int64_t i) {
  std::memcpy(static_cast<char*>(data) + i * sizeof(T), &value, sizeof(T));
}

// An IEEE-like format of 16 bits: sign, exponent, `mantissa` bits below the
// leading one.
struct Format16 {
  int mantissa;
  int min_exponent;  // of the smallest normal number
  int max_exponent;
};
constexpr Format16 kBinary16 = {10, -14, 15};
constexpr Format16 kBfloat16Format = {7, -126, 127};

double Widen(std::uint16_t bits, const Format16& format) {
  const int exponent_bits = 15 - format.mantissa;
  const int fraction = bits & ((1 << format.mantissa) - 1);
  const int biased = (bits >> format.mantissa) & ((1 << exponent_bits) - 1);
  double magnitude;
  if (biased == (1 << exponent_bits) - 1) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (biased == 0) {
    magnitude = std::ldexp(fraction, format.min_exponent - format.mantissa);
  } else {
    magnitude = std::ldexp(fraction + (1 << format.mantissa),
                           biased - 1 + format.min_exponent - format.mantissa);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::uint16_t Narrow(double value, const Format16& format) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const std::uint16_t infinity = 0x7fff & ~((1 << format.mantissa) - 1);
  if (std::isnan(value)) {
    return sign | infinity | (1 << (format.mantissa - 1));
  }
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent =
      std::max(std::ilogb(magnitude), static_cast<int>(format.min_exponent));
  // The magnitude in units of the last place is below 2^(mantissa + 1). ldexp
  // scales without error, so that nearbyint is the only rounding. If it rounds
  // up to 2^(mantissa + 1), adding the exponent's bits carries into them.
  const auto units = static_cast<std::uint32_t>(
      std::nearbyint(std::ldexp(magnitude, format.mantissa - exponent)));
  if (exponent > format.max_exponent) return sign | infinity;
  const std::uint32_t bits =
      (static_cast<std::uint32_t>(exponent - format.min_exponent)
       << format.mantissa) +
      units;
  return sign |
         static_cast<std::uint16_t>(std::min<std::uint32_t>(bits, infinity));
}

}  // namespace

std::size_t DtypeSize(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
      return 2;
    case Dtype::kFloat32:
    case Dtype::kInt32:
      return 4;
    case Dtype::kFloat64:
    case Dtype::kInt64:
      return 8;
  }
  return 0;
}

absl::string_view DtypeName(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "float32";
    case Dtype::kFloat16:
      return "float16";
    case Dtype::kBfloat16:
      return "bfloat16";
    case Dtype::kFloat64:
      return "float64";
    case Dtype::kInt32:
      return "int32";
    case Dtype::kInt64:
      return "int64";
  }
  return "unknown";
}

bool IsFloating(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 ||
         dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat64;
}

std::string ShapeToString(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<std::int64_t> ElementCount(const Shape& shape) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 62;
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      return FieldInvalid("shape",
                          absl::StrCat(ShapeToString(shape), " has the extent ",
                                       extent, "; extents are >= 0"));
    }
    if (extent == 0) {
      empty = true;
    } else if (product > kLimit / extent) {
      return FieldInvalid(
          "shape", absl::StrCat(ShapeToString(shape),
                                " has more than 2^62 elements; send less"));
    } else {
      product *= extent;
    }
  }
  return empty ? 0 : product;
}

double ElementAsDouble(const ConstTensorView& tensor, std::int64_t i) {
  switch (tensor.dtype) {
    case Dtype::kFloat32:
      return Load<float>(tensor.data, i);
    case Dtype::kFloat16:
      return Widen(Load<std::uint16_t>(tensor.data, i), kBinary16);
    case Dtype::kBfloat16:
      return Widen(Load<std::uint16_t>(tensor.data, i), kBfloat16Format);
    case Dtype::kFloat64:
      return Load<double>(tensor.data, i);
    case Dtype::kInt32:
      return Load<std::int32_t>(tensor.data, i);
    case Dtype::kInt64:
      return static_cast<double>(Load<std::int64_t>(tensor.data, i));
  }
  return 0;
}

void StoreDouble(double value, const TensorView& tensor, std::int64_t i) {
  switch (tensor.dtype) {
    case Dtype::kFloat32:
      return Store(static_cast<float>(value), tensor.data, i);
    case Dtype::kFloat16:
      return Store(Narrow(value, kBinary16), tensor.data, i);
    case Dtype::kBfloat16:
      return Store(Narrow(value, kBfloat16Format), tensor.data, i);
    case Dtype::kFloat64:
      return Store(value, tensor.data, i);
    case Dtype::kInt32:
      return Store(static_cast<std::int32_t>(std::nearbyint(value)),
                   tensor.data, i);
    case Dtype::kInt64:
      return Store(static_cast<std::int64_t>(std::nearbyint(value)),
                   tensor.data, i);
  }
}

}  // namespace posenc::core
