#include "tests/conformance/sent.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace posenc::conformance {
namespace {

template <typename T>
void Append(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

// Returns the bits of the nearest number of a 16-bit format, ties to even. It
// counts `value` in whole steps of the format at that size, so it rounds only
// once.
std::uint16_t Bits16(double value, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int top = (1 << exponent_bits) - 1;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const auto special = static_cast<std::uint16_t>(top << fraction_bits);
  if (std::isnan(value)) return special | 1;
  const double magnitude = std::abs(value);
  if (std::isinf(magnitude)) return sign | special;
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  // The exponent field of a normal number of this size. Subnormal numbers
  // (field 0) have the same step as field 1.
  const int field = std::max(exponent - 1 + bias, 1);
  const double step = std::ldexp(1.0, field - bias - fraction_bits);
  // The number of steps from 0. If rounding carries, the sum below increments
  // the exponent.
  const double steps = std::nearbyint(magnitude / step);
  const std::uint32_t bits =
      ((static_cast<std::uint32_t>(field) - 1) << fraction_bits) +
      static_cast<std::uint32_t>(steps);
  return sign |
         static_cast<std::uint16_t>(std::min<std::uint32_t>(bits, special));
}

// Returns the FP8 code of an exact number. E5M2 is the upper half of a
// binary16. E4M3 has three bits of fraction and a bias of 7 instead of 15, so
// after scaling by 2^-8 its bits lie in a binary16, too.
std::uint8_t Bits8(double value, bool e5m2) {
  if (e5m2) return static_cast<std::uint8_t>(Bits16(value, 5) >> 8);
  const std::uint16_t bits = Bits16(std::ldexp(value, -8), 5);
  return static_cast<std::uint8_t>((bits >> 8 & 0x80) | (bits >> 7 & 0x7f));
}

bool IsWhole(double value) {
  return std::trunc(value) == value && std::abs(value) <= 0x1p53;
}

// Appends `value`; false if the dtype has no such element.
bool AppendElement(v1::Dtype dtype, double value, std::string* out) {
  // Uses numbers, because the contract of 0.1.0 lacks the names of the dtypes
  // of 8 bits.
  switch (static_cast<int>(dtype)) {
    case 7:  // DTYPE_FLOAT8_E4M3FN
    case 8:  // DTYPE_FLOAT8_E5M2
      Append(Bits8(value, dtype == 8), out);
      return true;
    case 9:  // DTYPE_INT8
      if (!IsWhole(value) || value < -128 || value > 127) return false;
      Append(static_cast<std::int8_t>(value), out);
      return true;
    case v1::DTYPE_FLOAT32:
      Append(static_cast<float>(value), out);
      return true;
    case v1::DTYPE_FLOAT64:
      Append(value, out);
      return true;
    case v1::DTYPE_FLOAT16:
      Append(Bits16(value, 5), out);
      return true;
    case v1::DTYPE_BFLOAT16:
      Append(Bits16(value, 8), out);
      return true;
    case v1::DTYPE_INT32:
      if (!IsWhole(value) || std::abs(value) > 0x7fffffff) return false;
      Append(static_cast<std::int32_t>(value), out);
      return true;
    case v1::DTYPE_INT64:
      if (!IsWhole(value)) return false;
      Append(static_cast<std::int64_t>(value), out);
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::optional<TensorView> SentTensors::View(const v1::Tensor& tensor) {
  // Does not use ViewOf(), which the client of 0.1.0 lacks (./run
  // compatibility).
  const auto view = [&](absl::Span<const char> bytes) {
    return TensorView{
        tensor.dtype(), {tensor.shape().begin(), tensor.shape().end()}, bytes};
  };
  if (tensor.values_size() == 0) return view(tensor.data());
  if (!tensor.data().empty()) return absl::nullopt;
  std::int64_t elements = 1;
  for (const std::int64_t extent : tensor.shape()) elements *= extent;
  if (tensor.values_size() != elements) return absl::nullopt;
  std::string& bytes = bytes_.emplace_back();
  for (const double value : tensor.values()) {
    if (!AppendElement(tensor.dtype(), value, &bytes)) return absl::nullopt;
  }
  return view(bytes);
}

}  // namespace posenc::conformance
