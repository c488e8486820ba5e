// Evaluates rows of any absolute encoding, one at a time.

#pragma once

#include <cstdint>
#include <variant>

#include "absl/status/status.h"
#include "core/absolute/encoding.h"
#include "core/absolute/grid.h"
#include "core/absolute/learned.h"
#include "core/absolute/trig_rows.h"

namespace posenc::core {

// T is float (values rounded once) or double.
template <typename T>
class AbsoluteRows {
 public:
  // Expects a validated encoding.
  explicit AbsoluteRows(const AbsoluteEncoding& encoding);

  // Writes the row of a token at positions[axis]; CheckReach() must accept the
  // positions. For a grid, writes row t.
  void Row(std::int64_t t, const double* positions, T* row);

 private:
  std::variant<TrigRows, LearnedRows<T>, GridRows<T>> rows_;
};

// Returns OUT_OF_RANGE if a trained table has no row for a position
// (learned.h). The error's index is `first` plus the position's index.
absl::Status CheckReach(const AbsoluteEncoding& encoding,
                        const TokenPositions& positions,
                        std::int64_t first = 0);

}  // namespace posenc::core
