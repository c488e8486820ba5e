#include "core/rope/prepared_rope.h"

#include <cstddef>

#include "core/rope/xpos.h"

namespace posenc::core {

PreparedFrequencies::PreparedFrequencies(const ResolvedRope& rope)
    : axis_of_pair(rope.axis_of_pair) {
  const std::size_t pairs = rope.spec.nope ? 0 : rope.pairs();
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
    // The float32 angle of a pair is then a position of frequency 1.
    const QuarterTurns one = SplitQuarterTurns(1);
    for (std::size_t i = 0; i < kStackPairs; ++i) quarter_turns.Append(one);
    return;
  }
  for (const double w : rope.inv_freq) {
    quarter_turns.Append(SplitQuarterTurns(w));
  }
}

}  // namespace posenc::core
