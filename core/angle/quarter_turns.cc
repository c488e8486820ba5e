#include "core/angle/quarter_turns.h"

#include <cmath>

#include "core/angle/two_sum.h"

namespace posenc::core {
namespace {

// 2 / pi to 160 bits: the float64 nearest to it, the float64 nearest to the
// rest, and so on.
constexpr double kTwoOverPi[3] = {0x1.45f306dc9c883p-1, -0x1.6b01ec5417056p-55,
                                  -0x1.6447e493ad4cep-109};

// Rounds x to its 21 leading significant bits (Veltkamp). c is the sum of
// x * 2^32 and x, rounded to 53 bits. The rounding drops the lower 53 - 21 = 32
// bits of the added x. So c - (c - x) is the upper 21 bits of x.
double Round21(double x) {
  const double c = x * 4294967297.0;  // 2^32 + 1
  return c - (c - x);
}

}  // namespace

QuarterTurns CutQuarterTurns(double turns) {
  const double hi = Round21(turns);
  const double mid = Round21(turns - hi);
  return {hi, mid, (turns - hi) - mid};
}

// The product is first computed to 159 bits, as a sum of three float64 numbers
// that do not overlap. Then this sum is cut at 21 and at 42 bits:
//
//   inv_freq * 2/pi = p0 + e0            fma gives the product's rounding error
//                        + p1 + e1       p1 is about 2^-54 p0
//                             + p2       p2 is about 2^-108 p0
QuarterTurns SplitQuarterTurns(double inv_freq) {
  const double p0 = inv_freq * kTwoOverPi[0];
  const double e0 = std::fma(inv_freq, kTwoOverPi[0], -p0);
  const double p1 = inv_freq * kTwoOverPi[1];
  const double e1 = std::fma(inv_freq, kTwoOverPi[1], -p1);
  const ExactSum second = TwoSum(e0, p1);
  // p0 + second.value + third is the whole product. Each term is about 2^-53 of
  // the previous term; `third` is off by 2^-158 of the product.
  const double third = second.error + (e1 + inv_freq * kTwoOverPi[2]);

  const double hi = Round21(p0);
  // p0 - hi is exact: hi shares p0's leading bits.
  const ExactSum rest = TwoSum(p0 - hi, second.value);
  const double mid = Round21(rest.value);
  return {hi, mid, (rest.value - mid) + (rest.error + third)};
}

void QuarterTurnArrays::Append(const QuarterTurns& turns) {
  hi.push_back(turns.hi);
  mid.push_back(turns.mid);
  lo.push_back(turns.lo);
}

}  // namespace posenc::core
