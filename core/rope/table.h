// Cosines and sines of a rotary encoding: rows for the rotation, and whole
// tables.
//
//   cos[t][i] = amplitude * cos(phi), sin[t][i] = amplitude * sin(phi),
//   phi = sum over the axes of position[t][axis] * inv_freq[i]
//
// EXACT: position * frequency is reduced exactly and the float32 value is the
// correctly rounded one wherever tested (positions to 2^26 in a million seeded
// points); float64 values are within 2 ulp. FLOAT32: each product is rounded
// to float32 first, as the frameworks do, and the float32 angle then evaluated
// as above. The same bytes on every instruction set.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/positions.h"
#include "core/rope/frequencies.h"
#include "core/rope/prepared_rope.h"
#include "core/tensor.h"

namespace posenc::core {

enum class TableLayout {
  kHalf = 1,
  kDuplicated = 2,
  kPairRepeated = 3,
  kComplex = 4,
};

// Numbered as posenc.v1.Direction.
enum class Direction { kForward = 1, kInverse = 2, kAdjoint = 3 };

// Which of q and k a row is for; they differ with xPos and a query scale only.
enum class TensorRole { kQuery, kKey };

// Evaluates rows of an encoding. Cheap to copy; safe for many threads.
class RotaryRows {
 public:
  // `query_scale` (may be null) applies to TensorRole::kQuery.
  // The direction decides the sign of the angle and whether amplitude, xPos
  // factor and query scale multiply (forward, adjoint) or divide (inverse).
  RotaryRows(const ResolvedRope& rope, Direction direction, TensorRole role,
             const QueryScale* query_scale);
  // frequencies: this encoding's.
  RotaryRows(const ResolvedRope& rope,
             std::shared_ptr<const PreparedFrequencies> frequencies,
             Direction direction, TensorRole role,
             const QueryScale* query_scale);

  std::size_t pairs() const { return pairs_; }
  std::size_t heads() const { return heads_; }  // >= 1: sets of frequencies

  // Writes [heads][2][pairs]: cosines, then sines, of one token that stands at
  // positions[axis]. T is float or double.
  template <typename T>
  void Row(const double* positions, T* row) const;

  // Factor on whole heads at this position (the query scale, or its inverse);
  // 1 where there is none. Row() includes it already.
  double HeadScale(const double* positions) const;

 private:
  std::size_t pairs_;
  std::size_t heads_;
  std::size_t frequency_axes_;
  std::shared_ptr<const PreparedFrequencies> frequencies_;
  bool float32_angles_;
  bool negate_;  // turn by -phi
  bool divide_;  // by amplitude and factors
  double amplitude_;
  bool has_xpos_;
  bool xpos_divides_;  // keys
  double xpos_center_, xpos_scale_base_;
  bool has_query_scale_;
  QueryScale query_scale_;
};

// OUT_OF_RANGE (field "ids", metadata index) where xPos would leave the range
// of float32: its factor is exponential in |position - center|. The index
// counts from `first`.
absl::Status CheckXPosReach(const ResolvedRope& rope,
                            const TokenPositions& positions,
                            std::int64_t first = 0);

// Extents of the tensors of a table: kHalf [rows, d/2]; kDuplicated and
// kPairRepeated [rows, d]; kComplex [rows, d/2, 2]; [heads, ...] in front where
// frequencies differ by head.
Shape TableShape(const ResolvedRope& rope, std::int64_t rows,
                 TableLayout layout);

// Fills `cos` and `sin` (kComplex: `cos` alone, as the table; sin.data is null)
// of TableShape and any floating dtype; values are rounded once from float64
// for float64 and float16/bfloat16, and as above for float32.
absl::Status BuildRopeTable(const ResolvedRope& rope,
                            const TokenPositions& positions, TableLayout layout,
                            TensorRole role, const TensorView& cos,
                            const TensorView& sin);

}  // namespace posenc::core
