// A rotary encoding that is ready to rotate with, and the question that asks
// for one. Resolving and preparing depend on the tensor's head_dim alone, so a
// server keeps what they gave and hands it to later calls.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/angle/delta_rows.h"
#include "core/angle/quarter_turns.h"
#include "core/rope/frequencies.h"

namespace posenc::core {

// CosSinEvaluator evaluates so many pairs at a time: their positions, factors
// and float32 angles lie on its stack.
inline constexpr std::size_t kStackPairs = 256;

// An encoding's frequencies, and all else that its cos/sin rows need beside its
// settings. It is worked out once and serves every direction and role.
struct PreparedFrequencies {
  explicit PreparedFrequencies(const ResolvedRope& rope);

  std::vector<std::int32_t> axis_of_pair;
  // [heads, frequency_axes, pairs]. With FLOAT32 angles all are of frequency 1,
  // and there are kStackPairs of them.
  QuarterTurnArrays quarter_turns;
  std::vector<float> float32_inv_freq;  // FLOAT32 only
  std::vector<double> xpos_log_zeta;    // [pairs]; empty without xPos

  // Whether rows follow from one another. They do not with several axes or sets
  // of frequencies, with xPos, with FLOAT32 angles, or if there are too many
  // pairs.
  bool can_have_deltas() const { return can_have_deltas_; }
  // The largest magnitude of a frequency, in radians per position.
  double fastest() const { return fastest_; }
  // Only if can_have_deltas(): of rows to their anchor, and of anchors to their
  // base. Made when they are first asked for; safe for many threads.
  const DeltaRows& deltas() const;
  const DeltaRows& strides() const;
  // What all of it takes, with deltas and strides.
  std::size_t bytes() const;

 private:
  bool can_have_deltas_;
  double fastest_ = 0;
  mutable std::once_flag deltas_once_, strides_once_;
  mutable std::optional<DeltaRows> deltas_, strides_;
};

struct PreparedRope {
  explicit PreparedRope(ResolvedRope resolved)
      : rope(std::move(resolved)),
        frequencies(std::make_shared<const PreparedFrequencies>(rope)) {}

  const ResolvedRope rope;
  const std::shared_ptr<const PreparedFrequencies> frequencies;
};

// Gives the encoding for heads of head_dim channels. Field paths of its errors
// are relative to the encoding's field, as ResolveSource's are. core/interpretation
// makes a lookup from a source (LookupOf); a cache may stand in front.
using RopeLookup =
    std::function<absl::StatusOr<std::shared_ptr<const PreparedRope>>(
        std::int64_t head_dim)>;

}  // namespace posenc::core
