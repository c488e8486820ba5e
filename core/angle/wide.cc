#include "core/angle/wide.h"

namespace posenc::core {
namespace {

constexpr Wide kLn2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};

Wide TimesPowerOfTwo(const Wide& x, int exponent) {
  return {std::ldexp(x.high, exponent), std::ldexp(x.low, exponent)};
}

}  // namespace

Wide Floor(const Wide& x) {
  const double high = std::floor(x.high);
  return high == x.high && std::isfinite(high) ? Join(high, std::floor(x.low))
                                               : high;
}

// e^x = 2^k e^r, with |r| <= ln(2) / 2. The power series of e^r ends with
// r^24 / 24!, which is below 2^-115.
Wide Exp(const Wide& x) {
  if (!(std::fabs(x.high) <= 700)) return std::exp(x.high);
  const double k = std::nearbyint(x.high / kLn2.high);
  const Wide r = x - kLn2 * k;
  Wide sum = 1, term = 1;
  for (int n = 1; n <= 24; ++n) {
    term = term * r / n;
    sum = sum + term;
  }
  return TimesPowerOfTwo(sum, static_cast<int>(k));
}

// For x = 2^k m and a guess y of ln(m), ln(m) = y + ln(1 + t) with t = m
// e^-y - 1. A guess in float64 has |t| < 2^-52, so t - t^2 / 2 is ln(1 + t) up
// to 2^-156. The result does not depend on the last bits of the guess.
Wide Log(const Wide& x) {
  if (!(x.high > 0) || std::isinf(x.high)) return std::log(x.high);
  int k;
  std::frexp(x.high, &k);
  const Wide m = TimesPowerOfTwo(x, -k);
  const double y = std::log(m.high);
  const Wide t = m * Exp(-y) - 1;
  return kLn2 * k + (t - t * t / 2) + y;
}

std::vector<Wide> Powers(const Wide& x, std::int64_t n) {
  std::vector<Wide> powers;
  powers.reserve(n);
  Wide power = 1;
  for (std::int64_t i = 0; i < n; ++i) {
    powers.push_back(power);
    power = power * x;
  }
  return powers;
}

}  // namespace posenc::core
