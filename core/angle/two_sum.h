// Sums without rounding.

#pragma once

namespace posenc::core {

struct ExactSum {
  double value, error;
};

// Returns the rounded sum of a and b, and its rounding error (Knuth): a + b =
// value + error exactly, also if b is larger than a. The compiler must not
// simplify these sums, so core is built without -ffast-math.
inline ExactSum TwoSum(double a, double b) {
  const double value = a + b;
  const double b_part = value - a;  // the part of b that is in value
  return {value, (a - (value - b_part)) + (b - b_part)};
}

}  // namespace posenc::core
