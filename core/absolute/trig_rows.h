// Rows of sines and cosines for sinusoidal, timestep, Fourier and grid
// encodings.
//
//   angle_i = sum over axes a of position[a] * frequency[a][i]
//
// Angles are reduced without error (angle/quarter_turns.h): float32 values are
// correctly rounded, float64 values within 2 ulp.

#pragma once

#include <cstddef>
#include <optional>

#include "core/absolute/encoding.h"
#include "core/angle/quarter_turns.h"

namespace posenc::core {

// The greatest dim that is accepted; no model has so many channels. Without
// this limit, a request of a few bytes could ask for any number of frequencies.
inline constexpr int kMaxAbsoluteDim = 65536;

// Returns factor * base^-exponent, evaluated in long double and rounded once to
// float64.
double GeometricFrequency(double base, long double exponent, double factor = 1);

class TrigRows {
 public:
  // `frequencies` has the shape [axes][sines]. The dim channels of a row hold
  // the sines, floor(dim / 2) cosines, and zeros. There are as many sines as
  // cosines; if they are interleaved, there may be one sine more. Interleaving
  // needs a single axis.
  TrigRows(SinusoidalOrder order, std::size_t dim, std::size_t axes,
           QuarterTurnArrays frequencies);

  // Makes the row at this position zero.
  void set_zero_position(double position) { zero_position_ = position; }

  std::size_t dim() const { return dim_; }
  std::size_t axes() const { return axes_; }

  // Writes the dim channels of a token at position[axis]. T is float or double.
  template <typename T>
  void Row(const double* position, T* row) const;

 private:
  SinusoidalOrder order_;
  std::size_t dim_, axes_, sines_;
  QuarterTurnArrays frequencies_;
  std::optional<double> zero_position_;
};

}  // namespace posenc::core
