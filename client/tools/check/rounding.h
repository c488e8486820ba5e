// Bounds on the difference between a correct result and the exact result.

#pragma once

#include <cmath>

#include "client/tools/check/element.h"
#include "posenc/client.h"

namespace posenc::check {

// Bounds for a rotated element, which is a sum of two products with a cosine
// and a sine. By the contract a server computes the sum in float32 (float64 for
// float64 tensors), then rounds it once to the tensor's dtype.
class RoundingBound {
 public:
  explicit RoundingBound(v1::Dtype dtype) : dtype_(dtype) {
    const v1::Dtype arithmetic =
        dtype == v1::DTYPE_FLOAT64 ? v1::DTYPE_FLOAT64 : v1::DTYPE_FLOAT32;
    unit_ = std::ldexp(1.0, -SignificandBits(arithmetic));
    tiny_ = UlpAt(arithmetic, 0);
  }

  // Returns the largest error before the last rounding. `terms` is the sum of
  // the magnitudes of the products, and `from_angle` is the error from an
  // inexact angle.
  //
  // The unit is half an ulp of 1: 2^-24 or 2^-53. The error of a cosine or sine
  // is at most 4 units (float64 values are within 2 ulp; float32 values are
  // better). The product and the sum add 1 unit each. Second-order terms and
  // the reference's own errors get 2 more units: together 8 units of `terms`.
  // An operation with a subnormal result has an error of at most half the least
  // positive number; for the three operations, the bound has twice the least
  // positive number.
  double Arithmetic(double terms, double from_angle) const {
    return terms * 8 * unit_ + 2 * tiny_ + from_angle;
  }

  // Returns the bound with the last rounding, which adds half an ulp of the
  // dtype. The number that is rounded may be larger than the exact result by
  // `arithmetic`, and larger numbers may have a larger ulp.
  double Rounded(double exact_magnitude, double arithmetic) const {
    return arithmetic + 0.5 * UlpAt(dtype_, exact_magnitude + arithmetic);
  }

  // Returns true if the error of `actual` is at most the bound with the last
  // rounding.
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
