#include "core/rope/prepared_rope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "core/rope/xpos.h"

namespace posenc::core {

PreparedRope::PreparedRope(ResolvedRope resolved)
    : rope(std::move(resolved)), pairs(rope.spec.nope ? 0 : rope.pairs()) {
  can_have_deltas_ = pairs > 0 && pairs <= DeltaRows::kMaxPairs &&
                     rope.heads <= 1 && rope.frequency_axes == 1 &&
                     rope.axis_of_pair.empty() && !rope.spec.xpos.has_value() &&
                     rope.spec.angle_precision != AnglePrecision::kFloat32;
  if (rope.spec.xpos.has_value()) {
    for (std::size_t i = 0; i < pairs; ++i) {
      xpos_log_zeta.push_back(
          static_cast<double>(XPosLogZeta(*rope.spec.xpos, i, pairs)));
    }
  }
  if (rope.spec.angle_precision == AnglePrecision::kFloat32) {
    for (const double w : rope.inv_freq) {
      float32_inv_freq.push_back(static_cast<float>(w));
    }
    // The kernel gets each pair's float32 angle as a position, and multiplies
    // this position by the frequency 1.
    const QuarterTurns one = SplitQuarterTurns(1);
    for (std::size_t i = 0; i < kStackPairs; ++i) quarter_turns.Append(one);
    return;
  }
  for (const double w : rope.inv_freq) {
    quarter_turns.Append(SplitQuarterTurns(w));
    fastest_ = std::max(fastest_, std::fabs(w));
  }
}

const PreparedRope::Deltas& PreparedRope::deltas() const {
  std::call_once(deltas_once_, [this] {
    deltas_.emplace(Deltas{DeltaRows(quarter_turns, 1),
                           DeltaRows(quarter_turns, DeltaRows::kRows)});
  });
  return *deltas_;
}

std::size_t PreparedRope::bytes() const {
  return sizeof(*this) + rope.inv_freq.size() * sizeof(double) +
         rope.axis_of_pair.size() * sizeof(std::int32_t) +
         quarter_turns.size() * 3 * sizeof(double) +
         float32_inv_freq.size() * sizeof(float) +
         xpos_log_zeta.size() * sizeof(double) +
         (can_have_deltas_ ? 2 * DeltaRows::Bytes(quarter_turns.size()) : 0);
}

}  // namespace posenc::core
