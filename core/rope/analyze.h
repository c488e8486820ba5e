// Numbers that describe a rotary encoding, for plots and for the choice of a
// base. w_i is the frequency of pair i, and d the number of rotated channels.
//
//   wavelengths[i] = 2 pi / w_i (infinity if w_i is 0)
//   decay(s)      = mean over n = 1..d/2 of |sum_(m < n) exp(i s w_m)|
//   similarity(s) = mean over pairs of cos(s w_i)
//   kept(s)       = the share of a score that another encoding keeps (kept.h)
//
// RoFormer (arXiv:2104.09864, 3.4.3) defines the decay. All sums are computed
// in float64 from exactly reduced angles.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/rope/cos_sin_evaluator.h"
#include "core/rope/frequencies.h"
#include "core/rope/kept.h"

namespace posenc::core {

// The greatest number of distances in one call.
inline constexpr std::int64_t kMaxDistances = 65536;

struct RopeAnalysis {
  std::vector<double> wavelengths;  // [d/2]
  std::vector<double> decay;        // at 0, distance_step, ... max_distance
  std::vector<double> similarity;   // likewise
  std::vector<double> kept;         // likewise; empty without compare_with
  // The number of pairs that complete a full rotation within the original
  // maximum number of positions; 0 if this maximum is not known.
  std::int32_t pairs_within_trained_length = 0;
};

// Computes an analysis part by part, because the analysis of one encoding may
// take seconds.
class RopeAnalyzer {
 public:
  // distance_step 0 means 1; original_max_position_embeddings 0 means the value
  // of `rope`. Errors name the field "rope" for several axes, frequencies by
  // head or NoPE, and the field "compare_with" for several axes or frequencies
  // by head. The other fields are "max_distance", "distance_step", and
  // "trained_length", which is the proto's name for
  // original_max_position_embeddings.
  static absl::StatusOr<RopeAnalyzer> Create(
      const ResolvedRope& rope, std::int64_t max_distance,
      std::int64_t distance_step, std::int64_t original_max_position_embeddings,
      const ResolvedRope* compare_with = nullptr);

  std::int64_t distances() const {
    return static_cast<std::int64_t>(analysis_.decay.size());
  }
  // Returns roughly how long the evaluation of one distance takes.
  std::int64_t Nanoseconds() const;
  // Evaluates the n distances with the numbers `first`, `first` + 1, ...
  // Several threads may evaluate different distances at the same time.
  void Evaluate(std::int64_t first, std::int64_t n);
  // The analysis is complete after all distances are evaluated.
  const RopeAnalysis& analysis() const { return analysis_; }

 private:
  RopeAnalyzer(RopeAnalysis analysis, std::int64_t step,
               const ResolvedRope& rope, const ResolvedRope* compare_with);

  RopeAnalysis analysis_;
  std::int64_t step_;
  CosSinEvaluator evaluator_;
  std::optional<Kept> kept_;
};

}  // namespace posenc::core
