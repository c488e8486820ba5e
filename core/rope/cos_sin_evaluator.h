// Cosines and sines of a rotary encoding, token by token.
//
//   cos[i] = A * cos(phi), sin[i] = A * sin(phi), A the attention factor,
//   phi = sum over the axes of position[axis] * inv_freq[i]
//
// With EXACT angles, position * frequency is reduced exactly
// (angle/quarter_turns.h). float32 values are correctly rounded
// (angle/exact_rounding.h), and float64 values are within 2 ulp. With FLOAT32
// angles, each product is first rounded to float32, as in the frameworks. The
// float32 angle is then evaluated like an EXACT angle. Every instruction set
// gives the same bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/angle/aligned_doubles.h"
#include "core/angle/delta_rows.h"
#include "core/positions/positions.h"
#include "core/rope/frequencies.h"
#include "core/rope/prepared_rope.h"
#include "core/rope/spec.h"

namespace posenc::core {

// Each value has the same number as in posenc.v1.Direction.
enum class Direction { kForward = 1, kInverse = 2, kAdjoint = 3 };

// Selects q or k. The cos/sin rows of q and k differ only with xPos or a query
// scale.
enum class TensorRole { kQuery, kKey };

// An evaluator is cheap to copy, and many threads may use it at the same time.
class CosSinEvaluator {
 public:
  // `query_scale` applies to TensorRole::kQuery, and may be null. The direction
  // decides the sign of the angle. The cosines and sines are multiplied by
  // attention factor, xPos factor and query scale (forward, adjoint) or divided
  // by them (inverse).
  CosSinEvaluator(std::shared_ptr<const PreparedRope> prepared,
                  Direction direction, TensorRole role,
                  const QueryScale* query_scale);
  // Prepares the encoding only for this evaluator and its copies.
  CosSinEvaluator(const ResolvedRope& rope, Direction direction,
                  TensorRole role, const QueryScale* query_scale);

  std::size_t pairs() const { return prepared_->pairs; }
  std::size_t heads() const { return heads_; }  // sets of frequencies, >= 1

  // Writes the row of a token at positions[axis]: cosines, then sines, in the
  // shape [heads][2][pairs]. T is float or double.
  template <typename T>
  void Row(const double* positions, T* row) const;

  // Two rows in float64: a base, and an anchor that is computed from the base.
  // DeltaRows::kRows rows are computed from the anchor.
  class Anchor {
   public:
    explicit Anchor(std::size_t pairs)
        : pitch_(DeltaRows::Pitch(pairs)), rows_(4 * pitch_) {}

   private:
    friend class CosSinEvaluator;

    // A row's cosines begin at element 0, and its sines at element pitch_.
    double* base() { return rows_.data(); }
    double* row() { return rows_.data() + 2 * pitch_; }

    std::size_t pitch_;
    AlignedDoubles rows_;
    // NaN means that there is no base yet.
    double base_position_ = std::numeric_limits<double>::quiet_NaN();
    double position_ = base_position_;
  };

  // True if rows can be computed from an anchor. This requires
  // can_have_deltas() of the encoding, no query scale, and a factor of cosines
  // and sines within 2^-96 .. 2^96.
  bool HasSums() const { return has_sums_; }
  // True if n rows at consecutive positions, from `position` on, use an anchor.
  bool Follow(double position, std::int64_t n) const;
  // Writes the rows of tokens at these positions, with the same bytes as Row(),
  // but faster if an anchor can be used. Row t begins at cos + t * pitch and at
  // sin + t * pitch. With `stream`, rows are written with non-temporal stores;
  // cos, sin and pitch must then be multiples of 64 bytes. `anchor` is updated,
  // for later calls of this evaluator. Requires HasSums().
  void Rows(absl::Span<const double> positions, float* cos, float* sin,
            std::ptrdiff_t pitch, bool stream, Anchor* anchor) const;
  // Returns the factor for all channels of a head at this position: the query
  // scale, or its inverse; 1 without a query scale. The rows of Row() already
  // include this factor.
  double HeadScale(const double* positions) const;

 private:
  // Moves the anchor so that the row at this whole position can be computed
  // from the anchor. Returns how many consecutive rows, including this row, can
  // be computed from the anchor.
  std::int64_t MoveTo(double position, Anchor* anchor) const;
  // Writes n rows that are computed from anchors.
  void FollowingRows(double position, std::int64_t n, float* cos, float* sin,
                     std::ptrdiff_t pitch, bool stream, Anchor* anchor) const;
  void OwnRow(double position, float* cos, float* sin) const;

  std::shared_ptr<const PreparedRope> prepared_;
  std::size_t heads_;
  bool float32_angles_;
  bool negate_;        // rotates by -phi
  bool divide_;        // divides by attention factor, xPos factor, query scale
  double factor_;      // the attention factor, or its inverse
  bool xpos_divides_;  // true for keys
  std::optional<QueryScale> query_scale_;
  bool has_sums_;
};

// Returns OUT_OF_RANGE for `field` if an xPos factor would leave the range of
// float32. The factor is exponential in |position - center|. The index in the
// error's metadata is `first` plus the position's index in `positions`.
absl::Status CheckXPosReach(const ResolvedRope& rope,
                            const TokenPositions& positions,
                            absl::string_view field, std::int64_t first = 0);

}  // namespace posenc::core
