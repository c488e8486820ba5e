// Evaluates rows of any absolute encoding, one at a time.

#pragma once

#include <cstdint>
#include <variant>

#include "absl/status/status.h"
#include "core/absolute/encoding.h"
#include "core/absolute/grid.h"
#include "core/absolute/learned.h"
#include "core/absolute/trig_rows.h"
#include "core/positions/positions.h"

namespace posenc::core {

// T is float (values rounded once) or double. The encoding must be validated.
template <typename T>
class AbsoluteRows {
 public:
  explicit AbsoluteRows(const AbsoluteEncoding& encoding);

  // Writes the row of a token at positions[axis]; CheckReach() must accept the
  // positions. For a grid, writes row t.
  void Row(std::int64_t t, const double* positions, T* row);

 private:
  std::variant<TrigRows, LearnedRows<T>, GridRows<T>> rows_;
};

// Fills parts of a table from a validated encoding. The encoding's frequencies
// are computed only once. Thread-safe.
class AbsoluteTable {
 public:
  // `dtype` is the table's dtype, which must be floating. `encoding` must
  // outlive the object.
  AbsoluteTable(const AbsoluteEncoding& encoding, Dtype dtype);

  // Fills `part`, [rows, dim], with the rows of these positions, which
  // CheckReach() must accept. For a grid, `positions` is null, and the rows are
  // first_row, first_row + 1, ...
  void Fill(const TokenPositions* positions, std::int64_t first_row,
            const TensorView& part) const;

 private:
  const AbsoluteEncoding& encoding_;
  // Float for a float32 table and double for other tables, so that each value
  // is rounded only once. Rounding to float32 and then to 16 bits could round a
  // value to the wrong side of a tie. Fill() works on a copy, because Row()
  // changes the object's state, and several threads may call Fill().
  std::variant<AbsoluteRows<float>, AbsoluteRows<double>> rows_;
};

// Returns OUT_OF_RANGE if a trained table has no row for a position: the
// position is negative or fractional, or past the end of the table or of its
// extension. The error's field is "positions"; the index in its metadata is
// `first` plus the position's index in [batch, tokens].
absl::Status CheckReach(const AbsoluteEncoding& encoding,
                        const TokenPositions& positions,
                        std::int64_t first = 0);

}  // namespace posenc::core
