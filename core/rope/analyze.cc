#include "core/rope/analyze.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/rope/table.h"

namespace posenc::core {
namespace {

constexpr long double kFullCircle = 2 * std::numbers::pi_v<long double>;
// The greatest position, and so the greatest distance from 0.
constexpr std::int64_t kMaxDistance = std::int64_t{1} << 31;

absl::Status CheckRope(absl::string_view field, const ResolvedRope& rope) {
  if (rope.axes() > 1) {
    return FieldInvalid(field, absl::StrCat("has ", rope.axes(),
                                            " position axes; must have one"));
  }
  if (rope.heads > 0) {
    return FieldInvalid(field,
                        absl::StrCat("has frequencies for each of ", rope.heads,
                                     " heads; analyze one head's"));
  }
  return absl::OkStatus();
}

absl::Status CheckRotates(const ResolvedRope& rope) {
  if (!rope.spec.nope) return absl::OkStatus();
  return FieldInvalid("rope",
                      "has no rotation (NoPE), and so no wavelengths; "
                      "analyze a layer that rotates");
}

absl::Status CheckDistances(std::int64_t max_distance, std::int64_t step) {
  if (max_distance < 0 || max_distance > kMaxDistance) {
    return FieldInvalid("max_distance", absl::StrCat("is ", max_distance,
                                                     "; must be 0 to 2^31"));
  }
  if (step < 0) {
    return FieldInvalid("distance_step",
                        absl::StrCat("is ", step, "; must be at least 1"));
  }
  if (max_distance / step >= kMaxDistances) {
    return FieldInvalid(
        "distance_step",
        absl::StrCat("is ", step, ", which makes ", max_distance / step + 1,
                     " distances up to ", max_distance, "; at most ",
                     kMaxDistances, " are evaluated"));
  }
  return absl::OkStatus();
}

// The encoding without attention factor, reversal and xPos, with exact angles:
// the analysis covers the rotation alone.
ResolvedRope BareRotation(const ResolvedRope& rope) {
  ResolvedRope bare = rope;
  bare.attention_factor = 1;
  bare.spec.reverse = false;
  bare.spec.angle_precision = AnglePrecision::kExact;
  bare.spec.xpos.reset();
  return bare;
}

}  // namespace

absl::StatusOr<RopeAnalysis> AnalyzeRope(
    const ResolvedRope& rope, std::int64_t max_distance,
    std::int64_t distance_step, std::int64_t original_max_position_embeddings,
    const StopAsked& stop, const ResolvedRope* compare_with) {
  const std::int64_t step = distance_step == 0 ? 1 : distance_step;
  absl::Status status = CheckRotates(rope);
  if (status.ok()) status = CheckRope("rope", rope);
  if (status.ok() && compare_with != nullptr) {
    status = CheckRope("compare_with", *compare_with);
  }
  if (status.ok()) status = CheckDistances(max_distance, step);
  if (!status.ok()) return status;
  if (original_max_position_embeddings < 0) {
    return FieldInvalid("trained_length",
                        absl::StrCat("is ", original_max_position_embeddings,
                                     "; must be >= 0"));
  }
  const std::int64_t trained = original_max_position_embeddings == 0
                                   ? rope.original_max_position_embeddings
                                   : original_max_position_embeddings;

  RopeAnalysis analysis;
  for (const double w : rope.inv_freq) {
    const long double magnitude = std::fabs(w);
    analysis.wavelengths.push_back(
        w == 0 ? std::numeric_limits<double>::infinity()
               : static_cast<double>(kFullCircle / magnitude));
    if (magnitude * trained >= kFullCircle)
      ++analysis.pairs_within_trained_length;
  }

  const CosSinEvaluator evaluator(BareRotation(rope), Direction::kForward,
                                  TensorRole::kQuery, nullptr);
  const std::size_t pairs = evaluator.pairs();
  std::vector<double> row(2 * pairs);
  for (std::int64_t s = 0; s <= max_distance; s += step) {
    if (stop) status = stop();
    if (!status.ok()) return status;
    const auto distance = static_cast<double>(s);
    evaluator.Row(&distance, row.data());
    // re and im run through the partial sums of exp(i s w_m), m < n. The decay
    // is the mean of their lengths; similarity needs only the last sum.
    double re = 0, im = 0, lengths = 0;
    for (std::size_t i = 0; i < pairs; ++i) {
      re += row[i];
      im += row[pairs + i];
      lengths += std::sqrt(re * re + im * im);
    }
    analysis.decay.push_back(lengths / static_cast<double>(pairs));
    analysis.similarity.push_back(re / static_cast<double>(pairs));
  }
  if (compare_with == nullptr) return analysis;
  Kept kept(rope, *compare_with, stop);
  for (std::int64_t s = 0; s <= max_distance; s += step) {
    analysis.kept.push_back(kept.At(s));
    if (!kept.status().ok()) return kept.status();
  }
  return analysis;
}

}  // namespace posenc::core
