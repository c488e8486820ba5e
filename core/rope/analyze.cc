#include "core/rope/analyze.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/rope/table.h"

namespace posenc::core {
namespace {

constexpr long double kFullCircle = 2 * std::numbers::pi_v<long double>;
// The greatest position, which is also the greatest distance from position 0.
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
    return MustBe("max_distance", max_distance, "0 to 2^31");
  }
  if (step < 0) {
    return MustBe("distance_step", step, "at least 1");
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

}  // namespace

absl::StatusOr<RopeAnalyzer> RopeAnalyzer::Create(
    const ResolvedRope& rope, std::int64_t max_distance,
    std::int64_t distance_step, std::int64_t original_max_position_embeddings,
    const ResolvedRope* compare_with) {
  const std::int64_t step = distance_step == 0 ? 1 : distance_step;
  RETURN_IF_ERROR(CheckRotates(rope));
  RETURN_IF_ERROR(CheckRope("rope", rope));
  if (compare_with != nullptr) {
    RETURN_IF_ERROR(CheckRope("compare_with", *compare_with));
  }
  RETURN_IF_ERROR(CheckDistances(max_distance, step));
  if (original_max_position_embeddings < 0) {
    return MustBe("trained_length", original_max_position_embeddings, ">= 0");
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
  analysis.decay.resize(max_distance / step + 1);
  analysis.similarity.resize(analysis.decay.size());
  if (compare_with != nullptr) analysis.kept.resize(analysis.decay.size());
  return RopeAnalyzer(std::move(analysis), step, rope, compare_with);
}

RopeAnalyzer::RopeAnalyzer(RopeAnalysis analysis, std::int64_t step,
                           const ResolvedRope& rope,
                           const ResolvedRope* compare_with)
    : analysis_(std::move(analysis)),
      step_(step),
      evaluator_(Bare(rope.inv_freq), Direction::kForward, TensorRole::kQuery,
                 nullptr) {
  if (compare_with != nullptr) kept_.emplace(rope, *compare_with);
}

// Each pair needs a sine, a cosine and a square root. A comparison needs twice
// as many sines and cosines.
std::int64_t RopeAnalyzer::Nanoseconds() const {
  return static_cast<std::int64_t>(evaluator_.pairs()) * (kept_ ? 20 : 9);
}

void RopeAnalyzer::Evaluate(std::int64_t first, std::int64_t n) {
  const std::size_t pairs = evaluator_.pairs();
  std::vector<double> row(2 * pairs);
  std::optional<Kept> kept = kept_;  // a copy, because At() changes it
  for (std::int64_t j = first; j < first + n; ++j) {
    const auto distance = static_cast<double>(j * step_);
    evaluator_.Row(&distance, row.data());
    // re + i im is the partial sum of exp(i s w_m), m < n, for each n in turn.
    // The decay is the mean of the lengths of all partial sums. The similarity
    // needs only the last sum.
    double re = 0, im = 0, lengths = 0;
    for (std::size_t i = 0; i < pairs; ++i) {
      re += row[i];
      im += row[pairs + i];
      lengths += std::sqrt(re * re + im * im);
    }
    analysis_.decay[j] = lengths / static_cast<double>(pairs);
    analysis_.similarity[j] = re / static_cast<double>(pairs);
    if (kept) analysis_.kept[j] = kept->At(j * step_);
  }
}

}  // namespace posenc::core
