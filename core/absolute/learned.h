// Rows of trained tables, and Su's hierarchical extension of them
// (kexue.fm/archives/7947, bert4keras' PositionEmbedding).
//
// A table's own rows are rounded once to the requested dtype, or copied if the
// table has this dtype. The extended row at position i * rows + j, i > 0, is
// computed in float64 and then rounded:
//
//   alpha * u_i + (1 - alpha) * u_j
//   u_k = (row_k - alpha * row_0) / (1 - alpha)
//
// The row's error is at most 8 * 2^-53 of the sum of the magnitudes of
// alpha / (1 - alpha) * row_i, row_j and row_0 / (1 - alpha). For i = 0 the
// formula gives row j of the table itself.

#pragma once

#include <cstdint>
#include <vector>

#include "core/absolute/encoding.h"
#include "core/base/tensor.h"

namespace posenc::core {

// Evaluates rows of a validated encoding at checked positions. T is float or
// double.
template <typename T>
class LearnedRows {
 public:
  explicit LearnedRows(const LearnedTable& encoding);

  void Row(double position, T* row);

 private:
  // Reads row k of the table. U is float or double.
  template <typename U>
  void Load(std::int64_t k, U* row);

  ConstTensorView table_;
  std::int64_t rows_, dim_;
  double alpha_;
  std::vector<double> first_, outer_, inner_;  // rows 0, i and j
};

}  // namespace posenc::core
