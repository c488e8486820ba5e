// A rotary encoding that is ready for rotations, and the type of a function
// that finds such an encoding. For a given encoding, the function's result
// depends only on the tensor's head_dim, so a server caches this result for
// later calls.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/angle/delta_rows.h"
#include "core/angle/quarter_turns.h"
#include "core/rope/frequencies.h"

namespace posenc::core {

// CosSinEvaluator evaluates this many pairs at a time, with their positions,
// factors and float32 angles on its stack.
inline constexpr std::size_t kStackPairs = 256;

// An encoding, and the precomputed data for its cos/sin rows. The data is
// computed once, and used for every direction and role.
class PreparedRope {
 public:
  explicit PreparedRope(ResolvedRope resolved);

  const ResolvedRope rope;
  // The number of rotated pairs; 0 for NoPE.
  const std::size_t pairs;
  // The frequencies, in the shape [heads, frequency_axes, pairs]. With FLOAT32
  // angles there are kStackPairs elements of frequency 1 instead.
  QuarterTurnArrays quarter_turns;
  std::vector<float> float32_inv_freq;  // FLOAT32 only
  std::vector<double> xpos_log_zeta;    // [pairs]; empty without xPos

  // True if rows can be computed from anchors. This is not possible with
  // several axes or sets of frequencies, xPos, FLOAT32 angles, or too many
  // pairs.
  bool can_have_deltas() const { return can_have_deltas_; }
  // The largest magnitude of a frequency, in radians per position.
  double fastest() const { return fastest_; }
  // The angles from an anchor to its rows, and from a base to its anchors
  // (angle/delta_rows.h).
  struct Deltas {
    DeltaRows rows, anchors;
  };
  // Requires can_have_deltas(). The first call computes the deltas.
  // Thread-safe.
  const Deltas& deltas() const;
  // The size in bytes, deltas included.
  std::size_t bytes() const;

 private:
  bool can_have_deltas_;
  double fastest_ = 0;
  mutable std::once_flag deltas_once_;
  mutable std::optional<Deltas> deltas_;
};

// Returns the encoding for heads of head_dim channels. Errors name fields
// relative to the encoding's field, as in ResolveSource. LookupOf
// (core/interpretation) makes a lookup from a source; a cache may wrap this
// lookup.
using RopeLookup =
    std::function<absl::StatusOr<std::shared_ptr<const PreparedRope>>(
        std::int64_t head_dim)>;

}  // namespace posenc::core
