// Tables of a rotary encoding's cosines and sines. cos_sin_evaluator.h has the
// formula and accuracy.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "core/base/tensor.h"
#include "core/positions/positions.h"
#include "core/rope/cos_sin_evaluator.h"
#include "core/rope/frequencies.h"
#include "core/rope/prepared_rope.h"

namespace posenc::core {

enum class TableLayout {
  kHalf = 1,
  kDuplicated = 2,
  kPairRepeated = 3,
  kComplex = 4,
};

// Extents of the tensors of a table: kHalf [rows, d/2]; kDuplicated and
// kPairRepeated [rows, d]; kComplex [rows, d/2, 2]; [heads, ...] in front if
// frequencies differ by head.
Shape TableShape(const ResolvedRope& rope, std::int64_t rows,
                 TableLayout layout);

// Fills `cos` and `sin`, which have TableShape and any floating dtype. kComplex
// has only `cos`, and sin.data is null. float32 values are correctly rounded;
// other values are evaluated in float64 and rounded once.
absl::Status BuildRopeTable(std::shared_ptr<const PreparedRope> prepared,
                            const TokenPositions& positions, TableLayout layout,
                            TensorRole role, const TensorView& cos,
                            const TensorView& sin);

}  // namespace posenc::core
