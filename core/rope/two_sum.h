// Sums without rounding.

#pragma once

namespace posenc::core {

struct ExactSum {
  double value, error;
};

// a + b = value + error exactly (Knuth).
inline ExactSum TwoSum(double a, double b) {
  const double value = a + b;
  const double b_part = value - a;
  return {value, (a - (value - b_part)) + (b - b_part)};
}

}  // namespace posenc::core
