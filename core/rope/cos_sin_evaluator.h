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
#include "absl/types/span.h"
#include "core/angle/aligned_doubles.h"
#include "core/angle/delta_rows.h"
#include "core/positions.h"
#include "core/rope/frequencies.h"
#include "core/rope/prepared_rope.h"
#include "core/rope/spec.h"

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

  // Two rows in float64: a base, and an anchor that follows from it;
  // DeltaRows::kRows rows follow from the anchor.
  class Anchor {
   public:
    // Of an evaluator with so many pairs.
    explicit Anchor(std::size_t pairs)
        : pitch_(DeltaRows::Pitch(pairs)), rows_(4 * pitch_) {}

   private:
    friend class CosSinEvaluator;

    // Cosines, then sines, pitch_ further on.
    double* base() { return rows_.data(); }
    double* row() { return rows_.data() + 2 * pitch_; }

    std::size_t pitch_;
    AlignedDoubles rows_;
    double base_position_ = std::numeric_limits<double>::quiet_NaN();  // none
    double position_ = base_position_;
  };

  // Whether rows may follow from one another: not with several axes or sets of
  // frequencies, nor with factors that depend on the position.
  bool HasSums() const { return has_sums_; }
  // Whether those of n tokens at position, position + 1 .. do.
  bool Follow(double position, std::int64_t n) const;
  // The rows of tokens at these positions: the same bytes as Row() gives,
  // sooner where they follow from one another. Row t begins at cos + t * pitch
  // and at sin + t * pitch. stream: past the caches; cos, sin and pitch are
  // then multiples of 64 bytes. anchor: this evaluator's; kept up to date, for
  // rows that come next. Only if HasSums().
  void Rows(absl::Span<const double> positions, float* cos, float* sin,
            std::ptrdiff_t pitch, bool stream, Anchor* anchor) const;
  // Factor on whole heads at this position (the query scale, or its inverse);
  // 1 if there is none. Row() includes it already.
  double HeadScale(const double* positions) const;

 private:
  // Moves the anchor to where the row at this whole position follows from it.
  // Returns how many rows do, from this one on.
  std::int64_t MoveTo(double position, Anchor* anchor) const;
  // The rows of n tokens that follow from one another.
  void FollowingRows(double position, std::int64_t n, float* cos, float* sin,
                     std::ptrdiff_t pitch, bool stream, Anchor* anchor) const;
  void OwnRow(double position, float* cos, float* sin) const;

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
  bool has_sums_;
};

// OUT_OF_RANGE (this field, metadata index) if xPos would leave the range of
// float32: its factor is exponential in |position - center|. The index counts
// from `first`.
absl::Status CheckXPosReach(const ResolvedRope& rope,
                            const TokenPositions& positions,
                            absl::string_view field, std::int64_t first = 0);

}  // namespace posenc::core
