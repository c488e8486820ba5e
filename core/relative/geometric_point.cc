#include "core/relative/geometric_point.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace posenc::core {
namespace {

constexpr std::int64_t kFarthest = std::int64_t{1} << 32;

// Returns a^n * b^m as digits in base 2^32, the lowest first.
std::vector<std::uint32_t> PowerProduct(std::uint64_t a, std::int64_t n,
                                        std::uint64_t b, std::int64_t m) {
  std::vector<std::uint32_t> digits = {1};
  for (std::int64_t i = 0; i < n + m; ++i) {
    const std::uint64_t factor = i < n ? a : b;
    unsigned __int128 carry = 0;
    for (std::uint32_t& digit : digits) {
      carry += static_cast<unsigned __int128>(digit) * factor;
      digit = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    for (; carry != 0; carry >>= 32) {
      digits.push_back(static_cast<std::uint32_t>(carry));
    }
  }
  return digits;
}

// Returns the sign of a - b.
int Compare(const std::vector<std::uint32_t>& a,
            const std::vector<std::uint32_t>& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  const auto [x, y] = std::mismatch(a.rbegin(), a.rend(), b.rbegin());
  return x == a.rend() ? 0 : (*x < *y ? -1 : 1);
}

}  // namespace

// The point is truncated to an integer. A rounded power is precise enough,
// unless an integer lies within its error. In this case, the nearest integer is
// compared with the point. With step / steps = n / d in lowest terms, the
// comparison is
//
//   nearest <=> first * (last / first)^(n / d)
//
// Both sides are raised to the power d, so that only integers are compared. The
// first comparison below is for n >= d, the second for n < d:
//
//   nearest^d * first^(n - d)  <=>  last^n       or
//   nearest^d                  <=>  last^n * first^(d - n)
//
// These integers may have hundreds of thousands of bits, but few points need
// this comparison.
GeometricPoint FindGeometricPoint(std::int64_t first, std::int64_t last,
                                  std::int64_t step, std::int64_t steps) {
  const long double ratio = static_cast<long double>(last) / first;
  const long double point =
      first * std::pow(ratio, static_cast<long double>(step) / steps);
  if (!(point <= kFarthest)) return {kFarthest, false};
  // The exponent is at most 3 and off by half an ulp. The relative error of the
  // point is at most ln(2^31) = 21.5 times this error. Together with the errors
  // of the ratio and of pow, the error of the point stays below 64 ulp.
  const long double slack =
      point * 256 * std::numeric_limits<long double>::epsilon();
  const std::int64_t nearest = std::llround(point);
  if (std::fabs(point - nearest) > slack) {
    return {static_cast<std::int64_t>(point), false};
  }
  const std::int64_t common = std::gcd(step, steps);
  const std::int64_t n = step / common;
  const std::int64_t d = steps / common;
  const int sign =
      Compare(PowerProduct(nearest, d, first, std::max<std::int64_t>(n - d, 0)),
              PowerProduct(last, n, first, std::max<std::int64_t>(d - n, 0)));
  return {sign > 0 ? nearest - 1 : nearest, sign == 0};
}

}  // namespace posenc::core
