// Numbers of twice the precision of float64, for results that are rounded once.
//
// The sum of two float64 numbers holds 106 bits. Sums, products and quotients
// of such numbers have a relative error of about 2^-103, and a float64 rounded
// from them is the nearest one unless the exact result lies closer than that to
// the middle of two. Unlike long double, every machine has it, with the same
// bits.

#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <vector>

#include "core/angle/two_sum.h"

namespace posenc::core {

// The number high + low; high is the float64 nearest to it.
struct Wide {
  double high, low;

  // Implicit, so that formulas can mix both kinds.
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
inline Wide operator+(const Wide& a, const Wide& b) {
  const ExactSum high = TwoSum(a.high, b.high);
  const ExactSum low = TwoSum(a.low, b.low);
  const Wide sum = Join(high.value, high.error + low.value);
  return Join(sum.high, sum.low + low.error);
}
inline Wide operator-(const Wide& a, const Wide& b) { return a + -b; }
inline Wide operator*(const Wide& a, const Wide& b) {
  const Wide high = Product(a.high, b.high);
  return Join(high.high, high.low + (a.high * b.low + a.low * b.high));
}
inline Wide operator/(const Wide& a, const Wide& b) {
  const double quotient = a.high / b.high;
  return Join(quotient, (a - b * quotient).high / b.high);
}

inline constexpr Wide kWidePi = {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53};

// The largest whole number that is not above x.
Wide Floor(const Wide& x);

// Exponential, with a relative error of at most 2^-95 for |x| <= 700, and
// beyond that float64's own; natural logarithm of finite x > 0, with an
// absolute error of at most 2^-95.
Wide Exp(const Wide& x);
Wide Log(const Wide& x);

// 1, x, x^2 ..., n numbers. Each product adds an error of 2^-103: 32768 of them
// leave 2^-88.
std::vector<Wide> Powers(const Wide& x, std::int64_t n);

}  // namespace posenc::core
