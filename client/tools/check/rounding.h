// Bounds on the difference of a correct result from the exact one.

#pragma once

#include <cmath>

#include "client/tools/check/element.h"
#include "posenc/client.h"

namespace posenc::check {

// Bounds for sums of two products with a cosine or sine. By the contract a
// server computes them in float32 (float64 for float64 tensors), then rounds
// once to the tensor's dtype.
class RoundingBound {
 public:
  explicit RoundingBound(v1::Dtype dtype) : dtype_(dtype) {
    const v1::Dtype arithmetic =
        dtype == v1::DTYPE_FLOAT64 ? v1::DTYPE_FLOAT64 : v1::DTYPE_FLOAT32;
    unit_ = std::ldexp(1.0, -SignificandBits(arithmetic));
    tiny_ = UlpAt(arithmetic, 0);
  }

  // Returns the largest error before the last rounding. `terms`: sum of the
  // magnitudes of the products. `from_angle`: the error from an inexact angle.
  //
  // The unit is half an ulp of 1: 2^-24 or 2^-53. The error of a cosine or sine
  // is at most 4 units (float64 values are within 2 ulp; float32 values are
  // better). Each product, and the sum, adds 1 unit. Second-order terms and the
  // reference's own errors get 2 more: together 8 units of `terms`. An
  // operation with a subnormal result has an error of half a step; three
  // operations are within 2 steps.
  double Arithmetic(double terms, double from_angle) const {
    return terms * 8 * unit_ + 2 * tiny_ + from_angle;
  }

  // Returns the bound with the last rounding, half an ulp of the dtype. The
  // rounded number may be larger than the exact one by `arithmetic`, so that
  // its ulp may be the next binade's.
  double Rounded(double exact_magnitude, double arithmetic) const {
    return arithmetic + 0.5 * UlpAt(dtype_, exact_magnitude + arithmetic);
  }

  // Returns true if `actual` is within both bounds of `exact`.
  bool Allows(double actual, long double exact, double terms,
              double from_angle) const {
    const double magnitude = std::fabs(static_cast<double>(exact));
    return std::fabs(static_cast<double>(actual - exact)) <=
           Rounded(magnitude, Arithmetic(terms, from_angle));
  }

 private:
  v1::Dtype dtype_;
  double unit_;
  double tiny_;  // least positive number
};

}  // namespace posenc::check
