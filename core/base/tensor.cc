#include "core/base/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"

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

// A floating-point format of up to 16 bits: sign, exponent, and `mantissa` bits
// below the leading bit. A code is the bits of a number. `largest` is a code
// without the sign bit.
struct Format {
  int sign;  // the sign's bit
  int mantissa;
  int min_exponent;  // exponent of the smallest normal number
  int largest;       // code of the largest finite number
  int overflow;      // code of greater results: infinity or NaN
  int nan;           // code of every NaN
};
constexpr Format kBinary16 = {0x8000, 10, -14, 0x7bff, 0x7c00, 0x7e00};
constexpr Format kBfloat16Format = {0x8000, 7, -126, 0x7f7f, 0x7f80, 0x7fc0};
constexpr Format kE4m3 = {0x80, 3, -6, 0x7e, 0x7f, 0x7f};
constexpr Format kE5m2 = {0x80, 2, -14, 0x7b, 0x7c, 0x7f};

double Widen(int bits, const Format& format) {
  const int code = bits & (format.sign - 1);
  const int fraction = code & ((1 << format.mantissa) - 1);
  const int biased = code >> format.mantissa;
  double magnitude;
  if (code > format.largest) {
    magnitude = code == format.overflow && code != format.nan
                    ? std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::quiet_NaN();
  } else if (biased == 0) {
    magnitude = std::ldexp(fraction, format.min_exponent - format.mantissa);
  } else {
    magnitude = std::ldexp(fraction + (1 << format.mantissa),
                           biased - 1 + format.min_exponent - format.mantissa);
  }
  return (bits & format.sign) != 0 ? -magnitude : magnitude;
}

int Narrow(double value, const Format& format) {
  const int sign = std::signbit(value) ? format.sign : 0;
  // In FP8, every NaN becomes the same code, without a sign.
  const int nan_sign = format.sign == 0x80 ? 0 : sign;
  if (std::isnan(value)) return nan_sign | format.nan;
  const double magnitude = std::fabs(value);
  int code = format.overflow;
  if (magnitude == 0) {
    code = 0;
  } else if (std::isfinite(magnitude)) {
    const int exponent =
        std::max(std::ilogb(magnitude), static_cast<int>(format.min_exponent));
    // The magnitude in units of the last place is below 2^(mantissa + 1). ldexp
    // scales without error, so that nearbyint is the only rounding. If
    // nearbyint rounds up to 2^(mantissa + 1), the addition below carries into
    // the exponent's bits.
    const auto units = static_cast<int>(
        std::nearbyint(std::ldexp(magnitude, format.mantissa - exponent)));
    code =
        std::min(((exponent - format.min_exponent) << format.mantissa) + units,
                 format.overflow);
  }
  return code == format.nan ? nan_sign | code : sign | code;
}

}  // namespace

std::size_t DtypeSize(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat8E4m3fn:
    case Dtype::kFloat8E5m2:
    case Dtype::kInt8:
      return 1;
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
    case Dtype::kFloat8E4m3fn:
      return "float8_e4m3fn";
    case Dtype::kFloat8E5m2:
      return "float8_e5m2";
    case Dtype::kInt8:
      return "int8";
  }
  return "unknown";
}

bool IsFloating(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 ||
         dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat64;
}

bool IsFloat8(Dtype dtype) {
  return dtype == Dtype::kFloat8E4m3fn || dtype == Dtype::kFloat8E5m2;
}

std::string ShapeToString(const Shape& shape) {
  constexpr std::size_t kMost = 16;
  if (shape.size() <= kMost) {
    return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
  }
  return absl::StrCat("[",
                      absl::StrJoin(shape.begin(), shape.begin() + kMost, ", "),
                      ", and ", shape.size() - kMost, " more]");
}

absl::StatusOr<std::int64_t> ElementCount(const Shape& shape) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 62;
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      return FieldInvalid("shape",
                          absl::StrCat(ShapeToString(shape), " has the extent ",
                                       extent, "; extents are >= 0"));
    }
    if (extent == 0) continue;
    if (product > kLimit / extent) {
      return FieldInvalid(
          "shape",
          absl::StrCat(ShapeToString(shape), " has more than 2^62 elements",
                       empty ? " without its extent of 0" : "", "; send less"));
    }
    product *= extent;
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
    case Dtype::kFloat8E4m3fn:
      return Widen(Load<std::uint8_t>(tensor.data, i), kE4m3);
    case Dtype::kFloat8E5m2:
      return Widen(Load<std::uint8_t>(tensor.data, i), kE5m2);
    case Dtype::kInt8:
      return Load<std::int8_t>(tensor.data, i);
  }
  return 0;
}

void StoreDouble(double value, const TensorView& tensor, std::int64_t i) {
  switch (tensor.dtype) {
    case Dtype::kFloat32:
      return Store(static_cast<float>(value), tensor.data, i);
    case Dtype::kFloat16:
      return Store(static_cast<std::uint16_t>(Narrow(value, kBinary16)),
                   tensor.data, i);
    case Dtype::kBfloat16:
      return Store(static_cast<std::uint16_t>(Narrow(value, kBfloat16Format)),
                   tensor.data, i);
    case Dtype::kFloat64:
      return Store(value, tensor.data, i);
    case Dtype::kInt32:
      return Store(static_cast<std::int32_t>(std::nearbyint(value)),
                   tensor.data, i);
    case Dtype::kInt64:
      return Store(static_cast<std::int64_t>(std::nearbyint(value)),
                   tensor.data, i);
    case Dtype::kFloat8E4m3fn:
      return Store(static_cast<std::uint8_t>(Narrow(value, kE4m3)), tensor.data,
                   i);
    case Dtype::kFloat8E5m2:
      return Store(static_cast<std::uint8_t>(Narrow(value, kE5m2)), tensor.data,
                   i);
    case Dtype::kInt8:
      return Store(static_cast<std::int8_t>(std::nearbyint(value)), tensor.data,
                   i);
  }
}

}  // namespace posenc::core
