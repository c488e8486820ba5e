// Rows of sines and cosines, as sinusoidal, timestep, Fourier and grid
// encodings share them.
//
//   angle_i = sum over axes a of position[a] * frequency[a][i]
//
// Exact as rope/table.h: angles are reduced without error; float32 values are
// the correctly rounded ones wherever tested, float64 values within 2 ulp.

#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/absolute/sinusoidal.h"
#include "core/rope/turns.h"

namespace posenc::core {

// What the reduction to quarter turns takes: with positions of 2^31 angles stay
// below 2^51 quarter turns, and the last piece above the smallest float64.
inline constexpr double kMinFrequency = 0x1p-900;
inline constexpr double kMaxFrequency = 0x1p20;

// So that a request of a few bytes cannot ask for gigabytes of frequencies.
inline constexpr int kMaxAbsoluteDim = 1 << 20;

// factor * base^-exponent: the float64 nearest to what long double gives, as in
// rope/scaling.cc.
double LadderFrequency(double base, long double exponent, double factor = 1);

class TrigRows {
 public:
  // turns: [axes][sines]. dim channels hold the sines, floor(dim / 2) cosines
  // (sines is that, or one more in the interleaved order), and zeros. Only one
  // axis interleaves.
  TrigRows(SinusoidalOrder order, std::size_t dim, std::size_t axes,
           const std::vector<Turns>& turns);

  // The row at this position is zero.
  void set_zero_position(double position) { zero_position_ = position; }

  std::size_t dim() const { return dim_; }
  std::size_t axes() const { return axes_; }

  // Writes the dim channels of a token at position[axis]. T: float or double.
  template <typename T>
  void Row(const double* position, T* row) const;

 private:
  SinusoidalOrder order_;
  std::size_t dim_, axes_, sines_;
  std::vector<double> hi_, mid_, lo_;
  std::optional<double> zero_position_;
};

}  // namespace posenc::core
