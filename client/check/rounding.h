// How far a correct result may be from the exact one.

#pragma once

#include "posenc/client.h"

namespace posenc::check {

// Bounds for sums of two products with a cosine or sine, as the contract allows
// a server to compute them: in float32 (float64 for float64 tensors), then
// rounded once to the tensor's dtype.
class RoundingBound {
 public:
  explicit RoundingBound(v1::Dtype dtype);

  // Largest error before the last rounding. `terms`: sum of the magnitudes of
  // the products. `from_angle`: what an inexact angle adds.
  //
  // In units of the arithmetic (half an ulp of 1, 2^-24 or 2^-53) a cosine or
  // sine is off by at most 4 (float64's are within 2 ulp; float32's are
  // better), each product and the sum by 1. 2 more are for second-order terms
  // and for a reference that is no better than these: 8 units of `terms`.
  // Below the normal numbers an operation is off by half a step whatever its
  // size; three operations are within 2 steps.
  double Arithmetic(double terms, double from_angle) const {
    return terms * 8 * unit_ + 2 * tiny_ + from_angle;
  }

  // The same with the last rounding, which is to half an ulp of the dtype. The
  // rounded number may be `arithmetic` larger than the exact one, so that its
  // ulp may be the next binade's.
  double Rounded(double exact_magnitude, double arithmetic) const;

  // Whether `actual` is `exact` within both.
  bool Allows(double actual, long double exact, double terms,
              double from_angle) const;

 private:
  v1::Dtype dtype_;
  double unit_;
  double tiny_;  // least positive number
};

}  // namespace posenc::check
