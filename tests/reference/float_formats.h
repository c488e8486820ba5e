// float16 and bfloat16 by the definition of IEEE 754, and FP8 by
// arXiv:2209.05433: the oracle of the kernels' conversions, in plain scalar
// code.

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

// Returns the value of a 16-bit number; NaN for every NaN.
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

// Returns the nearest 16-bit number, ties to even; for any NaN the quiet NaN.
inline std::uint16_t Encode16(const Format16& format, double x) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int sign = std::signbit(x) ? 0x8000 : 0;
  const int infinity = ((1 << format.exponent_bits) - 1)
                       << format.mantissa_bits;
  const double magnitude = std::fabs(x);
  if (std::isnan(x)) {
    return static_cast<std::uint16_t>(infinity |
                                      1 << (format.mantissa_bits - 1));
  }
  if (std::isinf(x)) return static_cast<std::uint16_t>(sign | infinity);
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  // Subnormals share the smallest normal exponent.
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - bias) exponent = 1 - bias;
  // An integer number of units in the last place; scaling is exact.
  const double units =
      std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  // Counting from the first number with this exponent carries into the next
  // exponent, and past the largest finite number into infinity.
  const double code =
      units + std::ldexp(exponent + bias - 1, format.mantissa_bits);
  const int bits = code < infinity ? static_cast<int>(code) : infinity;
  return static_cast<std::uint16_t>(sign | bits);
}

// Returns half the distance between 16-bit numbers around x: the bound of
// rounding.
inline double HalfUlp16(const Format16& format, double x) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  int exponent = x == 0 ? 1 - bias : std::ilogb(x);
  if (exponent < 1 - bias) exponent = 1 - bias;
  return std::ldexp(0.5, exponent - format.mantissa_bits);
}

struct Format8 {
  int mantissa_bits;
  int bias;
  int largest;  // code of the largest finite number
  bool has_infinity;
};
inline constexpr Format8 kE4m3 = {3, 7, 0x7e, false};
inline constexpr Format8 kE5m2 = {2, 15, 0x7b, true};
inline constexpr std::uint8_t kNan8 = 0x7f;

// Returns the number that the code would have if no code meant infinity or NaN.
inline double Magnitude8(const Format8& format, int code) {
  const int mantissa = code & ((1 << format.mantissa_bits) - 1);
  const int exponent = code >> format.mantissa_bits;
  if (exponent == 0) {
    return std::ldexp(mantissa, 1 - format.bias - format.mantissa_bits);
  }
  return std::ldexp(mantissa + (1 << format.mantissa_bits),
                    exponent - format.bias - format.mantissa_bits);
}

// Returns the value of a code; NaN for every NaN.
inline double Decode8(const Format8& format, std::uint8_t bits) {
  const int code = bits & 0x7f;
  const double sign = (bits & 0x80) != 0 ? -1 : 1;
  if (code <= format.largest) return sign * Magnitude8(format, code);
  return format.has_infinity && code == format.largest + 1 ? sign * INFINITY
                                                           : std::nan("");
}

// Returns the code of the nearest number, ties to the even code, by a search of
// all codes. If the nearest number is the one past the largest, x overflows; if
// `finite`, the result is then the largest number. Any NaN becomes kNan8.
inline std::uint8_t Encode8(const Format8& format, double x, bool finite) {
  if (std::isnan(x)) return kNan8;
  const int sign = std::signbit(x) ? 0x80 : 0;
  const double magnitude = std::fabs(x);
  // Magnitudes ascend with their codes: low <= |x| < high, or past them all.
  int low = 0, high = format.largest + 1;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (Magnitude8(format, middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - Magnitude8(format, low);
  const double above = Magnitude8(format, high) - magnitude;
  const bool up = above < below || (above == below && high % 2 == 0);
  const int best = up ? high : low;
  if (best <= format.largest) return static_cast<std::uint8_t>(sign | best);
  if (finite) return static_cast<std::uint8_t>(sign | format.largest);
  return format.has_infinity ? static_cast<std::uint8_t>(sign | best) : kNan8;
}

// Half the distance between FP8 numbers around x.
inline double HalfUlp8(const Format8& format, double x) {
  int exponent = x == 0 ? 1 - format.bias : std::ilogb(x);
  if (exponent < 1 - format.bias) exponent = 1 - format.bias;
  return std::ldexp(0.5, exponent - format.mantissa_bits);
}

}  // namespace posenc::reference
