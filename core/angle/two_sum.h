// Sums without rounding.

#pragma once

namespace posenc::core {

struct ExactSum {
  double value, error;
};

// a + b = value + error exactly (Knuth), also if b is larger than a: value is
// the rounded sum, and error is its rounding error. The compiler must not
// simplify this, so core is built without -ffast-math.
inline ExactSum TwoSum(double a, double b) {
  const double value = a + b;
  const double b_part = value - a;  // the part of b that is in value
  return {value, (a - (value - b_part)) + (b - b_part)};
}

}  // namespace posenc::core
