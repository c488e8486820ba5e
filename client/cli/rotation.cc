#include "client/cli/rotation.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/check/element.h"
#include "client/check/random.h"
#include "client/check/rounding.h"

namespace posenc::cli {
namespace {

// Checks elements one by one.
class Judge {
 public:
  Judge(v1::Dtype dtype, double attention_factor, int repositions)
      : dtype_(dtype),
        attention_factor_(attention_factor),
        repositions_(repositions),
        bound_(dtype) {}

  void See(const check::RotatedElement& element) {
    ++result_.elements;
    if (element.passes_through) {
      if (!element.same_bytes) Wrong(element.index);
      return;
    }
    const auto products = static_cast<double>(element.terms);
    if (!std::isfinite(products)) {
      // Infinities and NaN have no exact result, but no result may be finite.
      if (std::isfinite(element.actual)) Wrong(element.index);
      return;
    }
    const auto from_angle = static_cast<double>(element.from_angle);
    double arithmetic = bound_.Arithmetic(products, from_angle);
    double scale = products / 16;
    if (repositions_ > 0) {
      // Every earlier rotation had such an error in both channels, of a pair of
      // the same length. Later rotations rotate that error vector but keep its
      // length, sqrt(2) times one channel's error. Each also rounds by half an
      // ulp of a channel, which is at most as long as the pair with its error
      // (1.01).
      const double length =
          static_cast<double>(std::hypot(element.x, element.y)) *
          attention_factor_;
      scale = length;
      arithmetic += repositions_ * 1.4143 *
                    (bound_.Arithmetic(length, from_angle) +
                     0.5 * check::UlpAt(dtype_, 1.01 * length));
    }
    const double magnitude = std::fabs(static_cast<double>(element.exact));
    const double bound = bound_.Rounded(magnitude, arithmetic);
    const double error =
        std::fabs(static_cast<double>(element.actual - element.exact));
    // Only float16 overflows from ordinary inputs: results from 65520 on, half
    // way from its largest number to 2^16, round to infinity.
    if (dtype_ == v1::DTYPE_FLOAT16 && std::isinf(element.actual) &&
        magnitude + arithmetic >= 65520) {
      return;
    }
    // FP8 also does, by the requested saturation: to its largest number, or
    // past it.
    if (check::IsFloat8(dtype_) &&
        magnitude + arithmetic >= check::LargestFinite(dtype_) &&
        !(std::fabs(element.actual) < check::LargestFinite(dtype_))) {
      return;
    }
    if (!(error <= bound)) Wrong(element.index);
    result_.max_error_of_bound =
        std::max(result_.max_error_of_bound, error / bound);
    result_.max_error_ulps =
        std::max(result_.max_error_ulps,
                 error / check::UlpAt(dtype_, std::max(magnitude, scale)));
  }

  const RotationCheck& result() const { return result_; }

 private:
  void Wrong(std::int64_t index) {
    if (result_.wrong++ == 0) result_.first_wrong = index;
  }

  const v1::Dtype dtype_;
  const double attention_factor_;
  const int repositions_;
  const check::RoundingBound bound_;
  RotationCheck result_;
};

}  // namespace

absl::StatusOr<RotationCheck> CheckRotation(const v1::ResolveRopeResponse& rope,
                                            const check::HeadsView& before,
                                            const check::HeadsView& after,
                                            std::int64_t start,
                                            int repositions) {
  const TensorView& sent = before.tensor;
  const TensorView& got = after.tensor;
  const absl::StatusOr<check::TokenRotation> rotation =
      check::TokenRotation::Of(rope, before.index.head_dim);
  if (!rotation.ok()) return rotation.status();
  if (sent.shape != got.shape || sent.dtype != got.dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("before is ", check::DtypeName(sent.dtype),
                     check::ShapeText(sent.shape), ", after is ",
                     check::DtypeName(got.dtype), check::ShapeText(got.shape)));
  }
  if (before.index.head_dim < rope.spec().rotary_dim()) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_dim ", before.index.head_dim,
                     " is less than rotary_dim ", rope.spec().rotary_dim()));
  }
  if (rope.head_dim() != 0 && before.index.head_dim > rope.head_dim()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "head_dim ", before.index.head_dim, " is more than the encoding's, ",
        rope.head_dim(), "; --head-dim allows wider heads"));
  }
  Judge judge(sent.dtype, rope.amplitude(), repositions);
  check::VisitRotatedHeads(
      *rotation, before, after,
      [start](std::int64_t token) {
        return static_cast<long double>(start + token);
      },
      /*token_step=*/1,
      [&judge](const check::RotatedElement& element) {
        judge.See(element);
        return true;
      });
  return judge.result();
}

absl::StatusOr<ScoreCheck> CheckScores(const check::HeadsView& q,
                                       const check::HeadsView& k,
                                       const check::HeadsView& moved_q,
                                       const check::HeadsView& moved_k) {
  if (q.tensor.shape != moved_q.tensor.shape ||
      k.tensor.shape != moved_k.tensor.shape ||
      q.index.batch != k.index.batch || q.index.tokens != k.index.tokens ||
      q.index.head_dim != k.index.head_dim || k.index.heads == 0 ||
      q.index.heads % k.index.heads != 0 ||
      q.tensor.dtype != moved_q.tensor.dtype ||
      k.tensor.dtype != moved_k.tensor.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scores of q ", check::ShapeText(q.tensor.shape), " and k ",
        check::ShapeText(k.tensor.shape), " with q ",
        check::ShapeText(moved_q.tensor.shape), " and k ",
        check::ShapeText(moved_k.tensor.shape), ": shapes disagree"));
  }
  ScoreCheck result;
  if (q.index.batch * q.index.tokens * q.index.heads == 0) return result;
  // The error of a rotated value is half an ulp, that is 2^-bits of it, plus
  // the arithmetic's 8 units (RoundingBound) of its products' sum. For both
  // channels of a pair together these sums are at most sqrt(2) < 1.5 times the
  // pair's length. Every factor of every product has such an error, in both
  // rotations: twice the sum for q and k.
  const auto unit = [](const check::HeadsView& view) {
    return std::ldexp(1.0, -check::SignificandBits(view.tensor.dtype)) +
           8 * 1.5 *
               std::ldexp(1.0,
                          view.tensor.dtype == v1::DTYPE_FLOAT64 ? -53 : -24);
  };
  const double relative = 2 * (unit(q) + unit(k)) * 1.01;  // second order
  // A sample: all pairs of 4096 tokens would be 16 million for each head.
  constexpr std::int64_t kSamples = 20000;
  check::Random random(1);
  double squares = 0;
  for (std::int64_t n = 0; n < kSamples; ++n) {
    const std::int64_t b = random.Below(q.index.batch);
    const std::int64_t h = random.Below(q.index.heads);
    const std::int64_t q_head =
        q.index.Offset(b, random.Below(q.index.tokens), h);
    const std::int64_t k_head = k.index.Offset(
        b, random.Below(k.index.tokens), h / (q.index.heads / k.index.heads));
    double score = 0, moved = 0, q_squares = 0, k_squares = 0;
    for (std::int64_t i = 0; i < q.index.head_dim; ++i) {
      const double qi = check::ElementAt(q.tensor, q_head + i);
      const double ki = check::ElementAt(k.tensor, k_head + i);
      score += qi * ki;
      moved += check::ElementAt(moved_q.tensor, q_head + i) *
               check::ElementAt(moved_k.tensor, k_head + i);
      q_squares += qi * qi;
      k_squares += ki * ki;
    }
    // A rotation keeps lengths, so that |q| |k| bounds the sums of |q_i k_i| in
    // both rotations (Cauchy-Schwarz).
    const double bound = relative * std::sqrt(q_squares * k_squares);
    const double difference = std::fabs(score - moved);
    if (!(difference <= bound)) ++result.wrong;
    ++result.samples;
    squares += score * score;
    result.max_difference = std::max(result.max_difference, difference);
    if (bound > 0) {
      result.max_difference_of_bound =
          std::max(result.max_difference_of_bound, difference / bound);
    }
  }
  result.typical_score =
      std::sqrt(squares / static_cast<double>(result.samples));
  return result;
}

}  // namespace posenc::cli
