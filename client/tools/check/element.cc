#include "client/tools/check/element.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace posenc::check {
namespace {

template <typename T>
T Load(const char* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <typename T>
void Store(char* data, std::int64_t index, T value) {
  std::memcpy(data + index * static_cast<std::int64_t>(sizeof(T)), &value,
              sizeof(T));
}

// float16 has a sign bit, 5 exponent bits (bias 15) and 10 fraction bits.
// Exponent 31 encodes infinities and NaN. Numbers with exponent 0 have no
// leading one, and the scale of exponent 1.
double HalfToDouble(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) {
    return fraction ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

// Rounds to nearest even with nearbyint(), in the default rounding mode.
std::uint16_t FloatToHalf(float value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isnan(value)) return sign | 0x7e00;
  // 65520 is halfway between the largest number, 65504, and 2^16.
  if (magnitude >= 65520) return sign | 0x7c00;
  if (magnitude < 0x1p-24 * 0.5) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -14);
  // Scales the number exactly, so that a step of the result is 1. If rounding
  // gives 2048, which is one step too many for the exponent, the addition in
  // the return statement carries into the exponent bits.
  const int rounded =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return sign | static_cast<std::uint16_t>(rounded + ((exponent + 14) << 10));
}

// E4M3 has a sign bit, 4 exponent bits (bias 7) and 3 fraction bits. It has no
// infinity: the largest exponent also encodes numbers, and only its last
// fraction encodes NaN.
double Float8ToDouble(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 15;
  const int fraction = bits & 7;
  const double sign = bits & 0x80 ? -1 : 1;
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(fraction, -9);
  return sign * std::ldexp(8 + fraction, exponent - 10);
}

double Float8ToDouble(v1::Dtype dtype, std::uint8_t bits) {
  // E5M2 is the upper half of a float16.
  return dtype == v1::DTYPE_FLOAT8_E5M2
             ? HalfToDouble(static_cast<std::uint16_t>(bits << 8))
             : Float8ToDouble(bits);
}

// Rounds to nearest even by a search over the bits, because magnitudes have the
// same order as their bits. Saturates at the largest number, so that samples
// stay finite.
std::uint8_t FloatToFloat8(v1::Dtype dtype, float value) {
  const double magnitude = std::fabs(static_cast<double>(value));
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return 0x7f;
  int low = 0;
  int high = dtype == v1::DTYPE_FLOAT8_E5M2 ? 0x7b : 0x7e;
  const auto at = [dtype](int bits) {
    return Float8ToDouble(dtype, static_cast<std::uint8_t>(bits));
  };
  if (magnitude >= at(high)) return sign | static_cast<std::uint8_t>(high);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (at(middle) <= magnitude ? low : high) = middle;
  }
  const double half = (at(low) + at(high)) / 2;
  const bool up = magnitude > half || (magnitude == half && low % 2 == 1);
  return sign | static_cast<std::uint8_t>(up ? high : low);
}

// bfloat16 is the upper half of a float32. To round to nearest even, adds just
// under half of the last kept bit, then that bit itself, before the lower half
// is cut off.
std::uint16_t FloatToBfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16) | 0x40;
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Properties of a floating point dtype, which functions of element.h return.
struct Format {
  v1::Dtype dtype;
  int significand_bits;
  int min_exponent;  // of the smallest normal number
  double largest;
};
constexpr Format kFormats[] = {
    {v1::DTYPE_FLOAT8_E5M2, 3, -14, 57344},
    {v1::DTYPE_FLOAT8_E4M3FN, 4, -6, 448},
    {v1::DTYPE_BFLOAT16, 8, -126, 0x1.fep127},
    {v1::DTYPE_FLOAT16, 11, -14, 65504},
    {v1::DTYPE_FLOAT32, 24, -126, std::numeric_limits<float>::max()},
    {v1::DTYPE_FLOAT64, 53, -1022, std::numeric_limits<double>::max()}};

// Returns all zeros if the dtype is not in kFormats.
Format FormatOf(v1::Dtype dtype) {
  for (const Format& format : kFormats) {
    if (format.dtype == dtype) return format;
  }
  return {};
}

}  // namespace

std::string DtypeName(v1::Dtype dtype) {
  // "DTYPE_BFLOAT16" without its prefix.
  return absl::AsciiStrToLower(v1::Dtype_Name(dtype).substr(6));
}

std::int64_t ElementCount(const std::vector<std::int64_t>& shape) {
  // A zero extent makes the product 0, even if the others overflow.
  std::int64_t count = 1;
  bool overflow = false;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return -1;
    if (extent == 0) empty = true;
    overflow |= __builtin_mul_overflow(count, extent, &count);
  }
  if (empty) return 0;
  return overflow ? -1 : count;
}

double ElementAt(const TensorView& tensor, std::int64_t index) {
  const char* data = tensor.bytes.data();
  switch (tensor.dtype) {
    case v1::DTYPE_FLOAT32:
      return Load<float>(data, index);
    case v1::DTYPE_FLOAT64:
      return Load<double>(data, index);
    case v1::DTYPE_FLOAT16:
      return HalfToDouble(Load<std::uint16_t>(data, index));
    case v1::DTYPE_BFLOAT16:
      return std::bit_cast<float>(
          std::uint32_t{Load<std::uint16_t>(data, index)} << 16);
    case v1::DTYPE_FLOAT8_E4M3FN:
    case v1::DTYPE_FLOAT8_E5M2:
      return Float8ToDouble(tensor.dtype, Load<std::uint8_t>(data, index));
    case v1::DTYPE_INT8:
      return Load<std::int8_t>(data, index);
    case v1::DTYPE_INT32:
      return Load<std::int32_t>(data, index);
    case v1::DTYPE_INT64:
      return static_cast<double>(Load<std::int64_t>(data, index));
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

void SetElement(v1::Dtype dtype, char* data, std::int64_t index, float value) {
  switch (dtype) {
    case v1::DTYPE_FLOAT32:
      return Store(data, index, value);
    case v1::DTYPE_FLOAT64:
      return Store(data, index, static_cast<double>(value));
    case v1::DTYPE_FLOAT16:
      return Store(data, index, FloatToHalf(value));
    case v1::DTYPE_BFLOAT16:
      return Store(data, index, FloatToBfloat16(value));
    case v1::DTYPE_FLOAT8_E4M3FN:
    case v1::DTYPE_FLOAT8_E5M2:
      return Store(data, index, FloatToFloat8(dtype, value));
    default:
      return;
  }
}

bool IsFloat8(v1::Dtype dtype) {
  return dtype == v1::DTYPE_FLOAT8_E4M3FN || dtype == v1::DTYPE_FLOAT8_E5M2;
}

double LargestFinite(v1::Dtype dtype) { return FormatOf(dtype).largest; }

int SignificandBits(v1::Dtype dtype) {
  return FormatOf(dtype).significand_bits;
}

double UlpAt(v1::Dtype dtype, double value) {
  const Format format = FormatOf(dtype);
  const int exponent = value == 0
                           ? format.min_exponent
                           : std::max(std::ilogb(value), format.min_exponent);
  return std::ldexp(1.0, exponent - (format.significand_bits - 1));
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace posenc::check
