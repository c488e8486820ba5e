#include "core/rope/turns.h"

#include <cmath>

#include "core/rope/two_sum.h"

namespace posenc::core {
namespace {

// 2 / pi to 160 bits: the float64 nearest to it, to what remains, and so on.
constexpr double kTwoOverPi[3] = {0x1.45f306dc9c883p-1, -0x1.6b01ec5417056p-55,
                                  -0x1.6447e493ad4cep-109};

// The 21 leading significant bits (Veltkamp: 53 - 21 = 32).
double Round21(double x) {
  const double c = x * 4294967297.0;  // 2^32 + 1
  return c - (c - x);
}

}  // namespace

Turns SplitTurns(double inv_freq) {
  const double p0 = inv_freq * kTwoOverPi[0];
  const double e0 = std::fma(inv_freq, kTwoOverPi[0], -p0);
  const double p1 = inv_freq * kTwoOverPi[1];
  const double e1 = std::fma(inv_freq, kTwoOverPi[1], -p1);
  const ExactSum second = TwoSum(e0, p1);
  // All of p0 + second.value + third is the product; the terms shrink by about
  // 2^-53 each, and third is off by 2^-158 of it.
  const double third = second.error + (e1 + inv_freq * kTwoOverPi[2]);

  const double hi = Round21(p0);
  const ExactSum rest = TwoSum(p0 - hi, second.value);
  const double mid = Round21(rest.value);
  return {hi, mid, (rest.value - mid) + (rest.error + third)};
}

}  // namespace posenc::core
