#include "client/tools/check/element.h"

#include <algorithm>
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

// A floating point dtype. Its bits are a sign, an exponent and a fraction.
// Numbers with exponent 0 have no leading one, and their scale is the scale of
// exponent 1.
struct Format {
  v1::Dtype dtype;
  int significand_bits;
  int min_exponent;  // of the smallest normal number
  double largest;
  // Encode() gives larger numbers the code of `limit`. For FP8, `limit` is the
  // largest number, so that samples stay finite. For formats of 16 bits,
  // `limit` is the number whose code is infinity.
  double limit = 0;
};
constexpr Format kFormats[] = {
    {v1::DTYPE_FLOAT8_E5M2, 3, -14, 57344, 57344},
    {v1::DTYPE_FLOAT8_E4M3FN, 4, -6, 448, 448},
    {v1::DTYPE_BFLOAT16, 8, -126, 0x1.fep127, 0x1p128},
    {v1::DTYPE_FLOAT16, 11, -14, 65504, 65536},
    {v1::DTYPE_FLOAT32, 24, -126, std::numeric_limits<float>::max()},
    {v1::DTYPE_FLOAT64, 53, -1022, std::numeric_limits<double>::max()}};

// Returns all zeros if the dtype is not in kFormats.
Format FormatOf(v1::Dtype dtype) {
  for (const Format& format : kFormats) {
    if (format.dtype == dtype) return format;
  }
  return {};
}

// Decode and Encode are for formats of 8 and of 16 bits. T has as many
// bits as the format.
template <typename T>
double Decode(v1::Dtype dtype, T bits) {
  constexpr int kSign = 1 << (8 * sizeof(T) - 1);
  const Format format = FormatOf(dtype);
  const int one = 1 << (format.significand_bits - 1);
  const int exponent = (bits & (kSign - 1)) / one;
  const int fraction = bits % one;
  const int significand = exponent == 0 ? fraction : one + fraction;
  double magnitude =
      std::ldexp(significand, std::max(exponent, 1) - 1 + format.min_exponent -
                                  (format.significand_bits - 1));
  // A code above the largest number is infinity if its fraction is 0, else NaN.
  if (magnitude > format.largest) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  }
  return bits & kSign ? -magnitude : magnitude;
}

// Rounds to nearest even with nearbyint(), in the default rounding mode.
template <typename T>
T Encode(v1::Dtype dtype, float value) {
  constexpr int kSign = 1 << (8 * sizeof(T) - 1);
  const Format format = FormatOf(dtype);
  const int sign = std::signbit(value) ? kSign : 0;
  if (std::isnan(value)) return static_cast<T>(sign | (kSign - 1));
  const int one = 1 << (format.significand_bits - 1);
  const double magnitude = std::min<double>(std::fabs(value), format.limit);
  const int exponent = std::max(std::ilogb(magnitude), format.min_exponent);
  // Scales the number exactly, so that a step of the result is 1. If rounding
  // gives one step too many for the exponent, the sum below carries into the
  // exponent bits.
  const int rounded = static_cast<int>(std::nearbyint(
      std::ldexp(magnitude, format.significand_bits - 1 - exponent)));
  const int code = rounded + (exponent - format.min_exponent) * one;
  return static_cast<T>(sign | code);
}

}  // namespace

std::string DtypeName(v1::Dtype dtype) {
  // Leaves out the prefix of a name such as "DTYPE_BFLOAT16".
  return absl::AsciiStrToLower(v1::Dtype_Name(dtype).substr(6));
}

std::int64_t ElementCount(const std::vector<std::int64_t>& shape) {
  // A zero extent makes the product 0, even if the product of the other extents
  // overflows.
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
    case v1::DTYPE_BFLOAT16:
      return Decode(tensor.dtype, Load<std::uint16_t>(data, index));
    case v1::DTYPE_FLOAT8_E4M3FN:
    case v1::DTYPE_FLOAT8_E5M2:
      return Decode(tensor.dtype, Load<std::uint8_t>(data, index));
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
    case v1::DTYPE_BFLOAT16:
      return Store(data, index, Encode<std::uint16_t>(dtype, value));
    case v1::DTYPE_FLOAT8_E4M3FN:
    case v1::DTYPE_FLOAT8_E5M2:
      return Store(data, index, Encode<std::uint8_t>(dtype, value));
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
