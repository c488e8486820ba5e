// float16 and bfloat16 by the definition of IEEE 754: the oracle of the
// kernels' conversions, in plain scalar code.

#pragma once

#include <cmath>
#include <cstdint>

namespace posenc::reference {

struct Format16 {
  int exponent_bits;
  int mantissa_bits;
};
inline constexpr Format16 kFloat16 = {5, 10};
inline constexpr Format16 kBfloat16 = {8, 7};

// The value of a 16-bit number; NaN for every NaN.
inline double Decode16(const Format16& format, std::uint16_t bits) {
  const int max_exponent = (1 << format.exponent_bits) - 1;
  const int bias = max_exponent / 2;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits >> format.mantissa_bits) & max_exponent;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == max_exponent) {
    return mantissa == 0 ? sign * INFINITY : std::nan("");
  }
  if (exponent == 0) {
    return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  }
  return sign * std::ldexp(mantissa + (1 << format.mantissa_bits),
                           exponent - bias - format.mantissa_bits);
}

// The nearest 16-bit number, ties to even; x is not NaN.
inline std::uint16_t Encode16(const Format16& format, double x) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int sign = std::signbit(x) ? 0x8000 : 0;
  const int infinity = ((1 << format.exponent_bits) - 1)
                       << format.mantissa_bits;
  const double magnitude = std::fabs(x);
  if (std::isinf(x)) return static_cast<std::uint16_t>(sign | infinity);
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  // Subnormals share the smallest normal exponent.
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - bias) exponent = 1 - bias;
  // An integer number of units in the last place; scaling is exact.
  const double units =
      std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  // Counting on from the first number with this exponent carries into the next
  // exponent, and from the largest finite number into infinity.
  const double code =
      units + std::ldexp(exponent + bias - 1, format.mantissa_bits);
  const int bits = code < infinity ? static_cast<int>(code) : infinity;
  return static_cast<std::uint16_t>(sign | bits);
}

// Half the distance between 16-bit numbers around x: what rounding may cost.
inline double HalfUlp16(const Format16& format, double x) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  int exponent = x == 0 ? 1 - bias : std::ilogb(x);
  if (exponent < 1 - bias) exponent = 1 - bias;
  return std::ldexp(0.5, exponent - format.mantissa_bits);
}

}  // namespace posenc::reference
