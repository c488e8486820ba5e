#include "core/absolute/trig_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/angle/cos_sin_row.h"

namespace posenc::core {
namespace {

// The kernel writes cosines and sines separately. For an interleaved row, this
// many pairs at a time are evaluated on the stack, and then interleaved.
constexpr std::size_t kWovenPairs = 256;

}  // namespace

double GeometricFrequency(double base, long double exponent, double factor) {
  return static_cast<double>(
      factor * std::pow(static_cast<long double>(base), -exponent));
}

TrigRows::TrigRows(SinusoidalOrder order, std::size_t dim, std::size_t axes,
                   QuarterTurnArrays frequencies)
    : order_(order),
      dim_(dim),
      axes_(axes),
      sines_(frequencies.size() / axes),
      frequencies_(std::move(frequencies)) {}

template <typename T>
void TrigRows::Row(const double* position, T* row) const {
  if (zero_position_.has_value() && position[0] == *zero_position_) {
    std::fill_n(row, dim_, T{0});
    return;
  }
  constexpr double kFactor = 1;
  simd::TrigRow trig = frequencies_.Row(position, &kFactor);
  trig.position_axis_stride = 1;
  trig.axes = axes_;
  trig.n = sines_;
  const std::size_t n = dim_ / 2;
  if (dim_ % 2 != 0) row[dim_ - 1] = 0;
  if (order_ == SinusoidalOrder::kSinCos) {
    FillCosSinRow(trig, row + n, row);
  } else if (order_ == SinusoidalOrder::kCosSin) {
    FillCosSinRow(trig, row, row + n);
  } else {
    T cos[kWovenPairs], sin[kWovenPairs];
    for (std::size_t begin = 0; begin < sines_; begin += kWovenPairs) {
      frequencies_.Point(begin, &trig);
      trig.n = std::min(sines_ - begin, kWovenPairs);
      FillCosSinRow(trig, cos, sin);
      for (std::size_t i = 0; i < trig.n; ++i) {
        row[2 * (begin + i)] = sin[i];
        // If there are more sines than cosines, the last channel is a sine.
        if (begin + i < n) row[2 * (begin + i) + 1] = cos[i];
      }
    }
  }
}

template void TrigRows::Row(const double* position, float* row) const;
template void TrigRows::Row(const double* position, double* row) const;

}  // namespace posenc::core
