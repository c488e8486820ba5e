// Sine-cosine rows of a grid's cells (MAE, arXiv:2111.06377; vision towers).
//
// Each axis has c = dim / axes channels: sines, then cosines, of the angles
//
//   (index * step) * base^(-2i/c), i = 0 .. c/2 - 1
//
// The product index * step is rounded to float64. The frequency and the rows
// have the accuracy of a Sinusoidal. The first leading_zero_rows rows are
// zeros; the rows of the cells follow in row-major order.

#pragma once

#include <cstdint>
#include <vector>

#include "core/absolute/encoding.h"
#include "core/absolute/trig_rows.h"

namespace posenc::core {

// Evaluates rows of a validated grid. T is float or double.
template <typename T>
class GridRows {
 public:
  explicit GridRows(const SincosGrid& encoding);

  // Writes row t. Consecutive rows are cheapest, because an axis is evaluated
  // only if its index has changed.
  void Row(std::int64_t t, T* row);

 private:
  struct Axis {
    std::int64_t extent;
    double step;
    std::int64_t channel;     // first channel
    std::int64_t index = -1;  // the index whose row is in `values`
    std::vector<T> values = {};
  };

  std::int64_t dim_, zero_rows_;
  TrigRows axis_rows_;  // makes the rows of one axis
  std::vector<Axis> axes_;
};

}  // namespace posenc::core
