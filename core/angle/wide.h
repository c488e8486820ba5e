// Numbers of twice the precision of float64, for results that are rounded once.
//
// A Wide is the sum of two float64 numbers, and has 106 significant bits. Sums,
// products and quotients of Wide numbers have a relative error of about 2^-103.
// A result that is then rounded to float64 is the float64 nearest to the exact
// result, unless the exact result is closer than this error to the middle of
// two float64 numbers. Unlike long double, Wide gives the same bits on every
// machine.

#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <vector>

#include "core/angle/two_sum.h"

namespace posenc::core {

// The number high + low; high is the float64 nearest to this number.
struct Wide {
  double high, low;

  // The constructor is implicit, so that formulas can mix Wide and double.
  constexpr Wide(double value,  // NOLINT(google-explicit-constructor)
                 double error = 0)
      : high(value), low(error) {}

  friend auto operator<=>(const Wide&, const Wide&) = default;
  Wide operator-() const { return {-high, -low}; }
};

inline Wide Join(double high, double low) {
  const ExactSum sum = TwoSum(high, low);
  return {sum.value, sum.error};
}
// The exact product.
inline Wide Product(double a, double b) {
  const double high = a * b;
  return {high, std::fma(a, b, -high)};
}
// A result that is too large is infinite, as in float64. A quotient by 0 is
// infinite, too.
inline Wide operator+(const Wide& a, const Wide& b) {
  const ExactSum high = TwoSum(a.high, b.high);
  if (!std::isfinite(high.value)) return high.value;
  const ExactSum low = TwoSum(a.low, b.low);
  const Wide sum = Join(high.value, high.error + low.value);
  return Join(sum.high, sum.low + low.error);
}
inline Wide operator-(const Wide& a, const Wide& b) { return a + -b; }
inline Wide operator*(const Wide& a, const Wide& b) {
  const Wide high = Product(a.high, b.high);
  if (!std::isfinite(high.high)) return high.high;
  return Join(high.high, high.low + (a.high * b.low + a.low * b.high));
}
inline Wide operator/(const Wide& a, const Wide& b) {
  const double quotient = a.high / b.high;
  if (!std::isfinite(quotient) || std::isinf(b.high)) return quotient;
  return Join(quotient, (a - b * quotient).high / b.high);
}

inline constexpr Wide kWidePi = {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53};

// Returns the largest whole number <= x.
Wide Floor(const Wide& x);

// Exp is the exponential, with a relative error of at most 2^-95 for |x| <=
// 700, and with the error of std::exp for greater |x|. Log is the natural
// logarithm of x >= 0, with an absolute error of at most 2^-95 for finite x >
// 0.
Wide Exp(const Wide& x);
Wide Log(const Wide& x);

// Returns the n numbers 1, x, x^2, ... Each product adds an error of 2^-103, so
// 32768 products have an error of 2^-88.
std::vector<Wide> Powers(const Wide& x, std::int64_t n);

}  // namespace posenc::core
