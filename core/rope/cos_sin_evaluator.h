// Cosines and sines of a rotary encoding, token by token.
//
//   cos[i] = A * cos(phi), sin[i] = A * sin(phi), A the attention factor,
//   phi = sum over the axes of position[axis] * inv_freq[i]
//
// EXACT: position * frequency is reduced exactly (angle/quarter_turns.h) and
// the float32 value is correctly rounded (angle/exact_rounding.h); float64
// values are within 2 ulp. FLOAT32: each product is rounded to float32 first,
// as the frameworks do, and the float32 angle then evaluated as above. The same
// bytes on every instruction set.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/positions.h"
#include "core/rope/frequencies.h"
#include "core/rope/prepared_rope.h"
#include "core/rope/spec.h"
#include "core/simd/kernels.h"

namespace posenc::core {

// Numbered as posenc.v1.Direction.
enum class Direction { kForward = 1, kInverse = 2, kAdjoint = 3 };

// Says which of q and k is rotated. They differ with xPos and a query scale
// only.
enum class TensorRole { kQuery, kKey };

// Evaluates the cos/sin rows of an encoding. Cheap to copy; safe for many
// threads.
class CosSinEvaluator {
 public:
  // `query_scale` (may be null) applies to TensorRole::kQuery.
  // The direction decides the sign of the angle and whether attention factor,
  // xPos factor and query scale multiply (forward, adjoint) or divide
  // (inverse).
  CosSinEvaluator(const ResolvedRope& rope, Direction direction,
                  TensorRole role, const QueryScale* query_scale);
  // frequencies: this encoding's.
  CosSinEvaluator(const ResolvedRope& rope,
                  std::shared_ptr<const PreparedFrequencies> frequencies,
                  Direction direction, TensorRole role,
                  const QueryScale* query_scale);

  std::size_t pairs() const { return pairs_; }
  std::size_t heads() const { return heads_; }  // >= 1: sets of frequencies

  // Writes [heads][2][pairs]: cosines, then sines, of one token that stands at
  // positions[axis]. T is float or double.
  template <typename T>
  void Row(const double* positions, T* row) const;

  // Two rows in float64: a base, and an anchor that follows from it or is the
  // base itself; DeltaRows::kRows rows follow from the anchor.
  class Anchor {
   public:
    // Of an evaluator with so many pairs.
    explicit Anchor(std::size_t pairs)
        : pitch_(DeltaRows::Pitch(pairs)), rows_(4 * pitch_) {}

    // Rows that follow from it, from this position on.
    std::int64_t Left(double from) const;

   private:
    friend class CosSinEvaluator;

    // Where a base and an anchor may be put: cosines, then sines, pitch_
    // further on.
    double* own_base() { return rows_.data(); }
    double* own_row() { return rows_.data() + 2 * pitch_; }
    void StandAtBase(double position, const double* base) {
      base_ = row_ = base;
      base_position_ = position_ = position;
    }

    std::size_t pitch_;
    AlignedDoubles rows_;
    // In rows_, or a base that the encoding keeps.
    const double* base_ = nullptr;
    const double* row_ = nullptr;
    double base_position_ = std::numeric_limits<double>::quiet_NaN();  // none
    double position_ = base_position_;
  };

  // The rows of n tokens at position, position + 1 ..: the same bytes as Row()
  // gives, sooner. Row t begins at cos + t * pitch and at sin + t * pitch.
  // stream: past the caches; cos, sin and pitch are then multiples of 64 bytes.
  // anchor: this evaluator's; kept up to date, for rows that come next.
  // Only if HasConsecutiveRows(position, n), or n <= anchor->Left(position).
  bool HasConsecutiveRows(double position, std::int64_t n) const;
  void ConsecutiveRows(double position, std::int64_t n, float* cos, float* sin,
                       std::ptrdiff_t pitch, bool stream, Anchor* anchor) const;
  // Factor on whole heads at this position (the query scale, or its inverse);
  // 1 if there is none. Row() includes it already.
  double HeadScale(const double* positions) const;

 private:
  // Sees to it that so many rows follow from the anchor, from this position on;
  // moves it if they do not.
  void MoveTo(double position, std::int64_t rows, Anchor* anchor) const;
  // The same without another base. Returns whether that can be.
  bool MoveAlong(double position, std::int64_t rows, Anchor* anchor) const;
  // Whether the encoding keeps a base from which the row at this position
  // follows.
  bool HasKeptBase(double position) const;
  // Lets the anchor stand at that base.
  void TakeKeptBase(double position, Anchor* anchor) const;
  // Asks for the one row that follows from the anchor there.
  void SetSums(double position, const Anchor& anchor,
               simd::AngleSums* sums) const;

  std::size_t pairs_;
  std::size_t heads_;
  std::size_t frequency_axes_;
  std::shared_ptr<const PreparedFrequencies> frequencies_;
  bool float32_angles_;
  bool negate_;    // rotates by -phi
  bool divide_;    // by attention factor, xPos factor and query scale
  double factor_;  // the attention factor, or its inverse
  bool has_xpos_;
  bool xpos_divides_;  // for keys
  double xpos_center_, xpos_scale_base_;
  bool has_query_scale_;
  QueryScale query_scale_;
  bool has_sums_;  // if PreparedFrequencies has deltas
};

// OUT_OF_RANGE (this field, metadata index) if xPos would leave the range of
// float32: its factor is exponential in |position - center|. The index counts
// from `first`.
absl::Status CheckXPosReach(const ResolvedRope& rope,
                            const TokenPositions& positions,
                            absl::string_view field, std::int64_t first = 0);

}  // namespace posenc::core
