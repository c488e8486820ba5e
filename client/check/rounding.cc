#include "client/check/rounding.h"

#include <cmath>

#include "client/check/element.h"

namespace posenc::check {

RoundingBound::RoundingBound(v1::Dtype dtype) : dtype_(dtype) {
  const v1::Dtype arithmetic =
      dtype == v1::DTYPE_FLOAT64 ? v1::DTYPE_FLOAT64 : v1::DTYPE_FLOAT32;
  unit_ = std::ldexp(1.0, -SignificandBits(arithmetic));
  tiny_ = UlpAt(arithmetic, 0);
}

double RoundingBound::Rounded(double exact_magnitude, double arithmetic) const {
  return arithmetic + 0.5 * UlpAt(dtype_, exact_magnitude + arithmetic);
}

bool RoundingBound::Allows(double actual, long double exact, double terms,
                           double from_angle) const {
  const double magnitude = std::fabs(static_cast<double>(exact));
  return std::fabs(static_cast<double>(actual - exact)) <=
         Rounded(magnitude, Arithmetic(terms, from_angle));
}

}  // namespace posenc::check
