#include "core/angle/exact_rounding.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/angle/wide.h"
#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

// An angle in quarter turns: a count of whole quarter turns, and a fraction.
class Turns {
 public:
  // Adds the product of a and b. The product must be below 2^52 in magnitude,
  // so that its whole quarter turns can be subtracted without error.
  void Add(double a, double b) {
    const Wide product = Product(a, b);
    const double whole = std::nearbyint(product.high);
    quarters_ += static_cast<std::int64_t>(whole);
    fraction_ = fraction_ + Join(product.high - whole, product.low);
  }
  // Moves the whole quarter turns of the fraction to the count.
  void Finish() {
    const double whole = std::nearbyint(fraction_.high);
    quarters_ += static_cast<std::int64_t>(whole);
    fraction_ = fraction_ - whole;
  }

  unsigned quarters() const { return static_cast<unsigned>(quarters_ & 3); }
  const Wide& fraction() const { return fraction_; }

 private:
  std::int64_t quarters_ = 0;
  Wide fraction_ = 0;
};

// The power series of cosine (`first` is 0) or of sine (`first` is 1): terms
// x^n / n! of alternating sign, n = first, first + 2, ..., for |x| <= pi / 4.
// The last term is x^28 / 28! or x^29 / 29!, which are at most about 2^-108 and
// 2^-113.
Wide Series(const Wide& x, int first) {
  const Wide square = x * x;
  Wide term = first == 1 ? x : 1;
  Wide sum = term;
  for (int n = first + 1; n < 29; n += 2) {
    term = term * square / -(static_cast<double>(n) * (n + 1));
    sum = sum + term;
  }
  return sum;
}

// Rounds to the nearest float. `low` matters only if `high` is halfway between
// two floats.
float Round(const Wide& x) {
  const auto rounded = static_cast<float>(x.high);
  const double rest = x.high - static_cast<double>(rounded);
  if (rest == 0 || x.low == 0 || (rest > 0) != (x.low > 0)) return rounded;
  const float next = std::nextafter(
      rounded, rest > 0 ? std::numeric_limits<float>::infinity()
                        : -std::numeric_limits<float>::infinity());
  const double half =
      (static_cast<double>(next) - static_cast<double>(rounded)) / 2;
  return rest == half ? next : rounded;
}

bool NearHalfway(double x) {
  constexpr std::uint64_t kDropped = (std::uint64_t{1} << 29) - 1;
  constexpr std::uint64_t kHalfway = std::uint64_t{1} << 28;
  // A result within this distance of the middle of two floats, in units in the
  // last place, is evaluated again. The distance exceeds the largest difference
  // between the float64 results of trig_row_f64 and of trig_row_f32, so that no
  // result in doubt is missed.
  constexpr std::uint64_t kNear = 64;
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return ((bits - kHalfway + kNear) & kDropped) <= 2 * kNear;
}

}  // namespace

RoundedCosSin RoundExactly(const simd::TrigRow& row, std::size_t i) {
  Turns turns;
  for (std::size_t axis = 0; axis < row.axes; ++axis) {
    const double position = row.position[axis * row.position_axis_stride +
                                         i * row.position_pair_stride];
    const std::size_t at = axis * row.n + i;
    turns.Add(position, row.turns_hi[at]);
    turns.Add(position, row.turns_mid[at]);
    turns.Add(position, row.turns_lo[at]);
  }
  turns.Finish();
  const Wide radians = turns.fraction() * kWidePi * 0.5;
  const Wide even = Series(radians, 0), odd = Series(radians, 1);
  const auto signed_by = [](bool negative, const Wide& x) {
    return negative ? -x : x;
  };
  // The signs and the swap follow the table in simd/kernels_trig.inl.
  const unsigned q = turns.quarters();
  const bool swap = q % 2 == 1;
  const Wide cos = signed_by(((q + 1) & 2) != 0, swap ? odd : even);
  const Wide sin = signed_by(((q & 2) != 0) != row.negate, swap ? even : odd);
  const Wide factor = row.factor[i * row.factor_stride];
  return {Round(cos * factor), Round(sin * factor)};
}

void RoundExactly(const simd::TrigRow& row, float* cos, float* sin) {
  std::vector<double> wide(2 * row.n);
  double* const c = wide.data();
  double* const s = c + row.n;
  simd::ActiveKernels().trig_row_f64(row, c, s);
  for (std::size_t i = 0; i < row.n; ++i) {
    if (!NearHalfway(c[i]) && !NearHalfway(s[i])) continue;
    const RoundedCosSin rounded = RoundExactly(row, i);
    cos[i] = rounded.cos;
    // The sign of a sine of 0 in `rounded` is unspecified, so the kernel's sign
    // is used.
    sin[i] = rounded.sin == 0 ? std::copysign(0.0F, sin[i]) : rounded.sin;
  }
}

}  // namespace posenc::core
