#include "core/absolute/trig_rows.h"

#include <algorithm>
#include <cmath>

#include "core/simd/trig_row.h"

namespace posenc::core {
namespace {

// Interleaved rows are made of stretches of so many pairs.
constexpr std::size_t kChunk = 256;

}  // namespace

double LadderFrequency(double base, long double exponent, double factor) {
  return static_cast<double>(
      factor * std::pow(static_cast<long double>(base), -exponent));
}

TrigRows::TrigRows(SinusoidalOrder order, std::size_t dim, std::size_t axes,
                   const std::vector<Turns>& turns)
    : order_(order), dim_(dim), axes_(axes), sines_(turns.size() / axes) {
  for (const Turns& t : turns) {
    hi_.push_back(t.hi);
    mid_.push_back(t.mid);
    lo_.push_back(t.lo);
  }
}

template <typename T>
void TrigRows::Row(const double* position, T* row) const {
  if (zero_position_.has_value() && position[0] == *zero_position_) {
    std::fill_n(row, dim_, T{0});
    return;
  }
  constexpr double kAmplitude = 1;
  simd::TrigRow trig = {};
  trig.position = position;
  trig.position_axis_stride = 1;
  trig.turns_hi = hi_.data();
  trig.turns_mid = mid_.data();
  trig.turns_lo = lo_.data();
  trig.axes = axes_;
  trig.n = sines_;
  trig.amplitude = &kAmplitude;
  const std::size_t n = dim_ / 2;
  if (dim_ % 2 != 0) row[dim_ - 1] = 0;
  if (order_ == SinusoidalOrder::kSinCos) {
    simd::FillTrigRow(trig, row + n, row);
  } else if (order_ == SinusoidalOrder::kCosSin) {
    simd::FillTrigRow(trig, row, row + n);
  } else {
    T cos[kChunk], sin[kChunk];
    for (std::size_t begin = 0; begin < sines_; begin += kChunk) {
      trig.turns_hi = hi_.data() + begin;
      trig.turns_mid = mid_.data() + begin;
      trig.turns_lo = lo_.data() + begin;
      trig.n = std::min(sines_ - begin, kChunk);
      simd::FillTrigRow(trig, cos, sin);
      for (std::size_t i = 0; i < trig.n; ++i) {
        row[2 * (begin + i)] = sin[i];
        // An unpaired sine is the last channel.
        if (begin + i < n) row[2 * (begin + i) + 1] = cos[i];
      }
    }
  }
}

template void TrigRows::Row(const double* position, float* row) const;
template void TrigRows::Row(const double* position, double* row) const;

}  // namespace posenc::core
