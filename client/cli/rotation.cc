#include "client/cli/rotation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/element.h"
#include "client/cli/sample.h"

namespace posenc::cli {
namespace {

// Channels of pair i within the rotated slice.
struct Channels {
  std::int64_t x;
  std::int64_t y;
};

Channels ChannelsOf(v1::Pairing pairing, std::int64_t i, std::int64_t pairs) {
  return pairing == v1::PAIRING_INTERLEAVED ? Channels{2 * i, 2 * i + 1}
                                            : Channels{i, i + pairs};
}

absl::Status Unsupported(absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat("check: ", what, " is not checked"));
}

class Checker {
 public:
  Checker(v1::Dtype dtype, double amplitude, int repositions,
          RotationCheck* result)
      : dtype_(dtype),
        amplitude_(amplitude),
        repositions_(repositions),
        result_(result) {
    // What the arithmetic rounds to: float32, float64 for float64.
    const v1::Dtype arithmetic =
        dtype == v1::DTYPE_FLOAT64 ? v1::DTYPE_FLOAT64 : v1::DTYPE_FLOAT32;
    unit_ = std::ldexp(1.0, -SignificandBits(arithmetic));
    tiny_ = UlpAt(arithmetic, 0);
  }

  // One output u * c + v * s, where c and s are amplitude times cosine and
  // sine, known to angle_error.
  void Compare(long double u, long double c, long double v, long double s,
               double angle_error, double actual, std::int64_t index) {
    const long double exact = u * c + v * s;
    const double products =
        static_cast<double>(std::fabs(u * c) + std::fabs(v * s));
    ++result_->elements;
    if (!std::isfinite(products)) {
      if (std::isfinite(actual)) Wrong(index);
      return;
    }
    // The table's cosine and sine, each product and the sum: relative errors of
    // 4 (float64's is within 2 ulp, 4 units), 1 and 1 units of the products, 2
    // more for second order terms and for a reference that is no better. Then
    // the angle's error, and one rounding to the dtype; numbers below the
    // normal ones are off by half a step in each of three operations.
    const double from_angle = angle_error * amplitude_ *
                              static_cast<double>(std::fabs(u) + std::fabs(v));
    double arithmetic = products * 8 * unit_ + 2 * tiny_ + from_angle;
    double scale = products / 16;
    if (repositions_ > 0) {
      // Earlier rotations were as wrong, in both channels, of a pair as long;
      // the later ones turned that error, which keeps its length: sqrt(2) of
      // one channel's. Rounding is by half an ulp of a channel, which is no
      // longer than the pair (1.01: with its error).
      const double length = static_cast<double>(std::hypot(u, v)) * amplitude_;
      scale = length;
      arithmetic += repositions_ * 1.4143 *
                    (length * 8 * unit_ + 2 * tiny_ + from_angle +
                     0.5 * UlpAt(dtype_, 1.01 * length));
    }
    const double magnitude = std::fabs(static_cast<double>(exact));
    const double bound =
        arithmetic + 0.5 * UlpAt(dtype_, magnitude + arithmetic);
    const double error = std::fabs(static_cast<double>(actual - exact));
    // Of float16 alone, results past the largest number become infinite.
    if (dtype_ == v1::DTYPE_FLOAT16 && std::isinf(actual) &&
        magnitude + arithmetic >= 65520) {
      return;
    }
    if (!(error <= bound)) Wrong(index);
    result_->max_error_of_bound =
        std::max(result_->max_error_of_bound, error / bound);
    result_->max_error_ulps =
        std::max(result_->max_error_ulps,
                 error / UlpAt(dtype_, std::max(magnitude, scale)));
  }

  void Wrong(std::int64_t index) {
    if (result_->wrong++ == 0) result_->first_wrong = index;
  }

 private:
  const v1::Dtype dtype_;
  const double amplitude_;
  const int repositions_;
  double unit_;
  double tiny_;
  RotationCheck* const result_;
};

}  // namespace

absl::StatusOr<HeadsView> HeadsView::Of(const TensorView& tensor,
                                        v1::Layout layout) {
  const std::size_t rank = layout == v1::LAYOUT_THD ? 3 : 4;
  if (tensor.shape.size() != rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", ShapeText(tensor.shape), " has ",
                     tensor.shape.size(), " extents; the layout has ", rank));
  }
  const std::vector<std::int64_t>& n = tensor.shape;
  HeadsView view;
  view.tensor = tensor;
  view.head_dim = n.back();
  switch (layout) {
    case v1::LAYOUT_BSHD:
      view.batch = n[0], view.tokens = n[1], view.heads = n[2];
      view.head_stride = n[3];
      view.token_stride = n[2] * n[3];
      view.batch_stride = n[1] * n[2] * n[3];
      break;
    case v1::LAYOUT_BHSD:
      view.batch = n[0], view.heads = n[1], view.tokens = n[2];
      view.token_stride = n[3];
      view.head_stride = n[2] * n[3];
      view.batch_stride = n[1] * n[2] * n[3];
      break;
    case v1::LAYOUT_SBHD:
      view.tokens = n[0], view.batch = n[1], view.heads = n[2];
      view.head_stride = n[3];
      view.batch_stride = n[2] * n[3];
      view.token_stride = n[1] * n[2] * n[3];
      break;
    default:
      view.tokens = n[0], view.heads = n[1];
      view.head_stride = n[2];
      view.token_stride = n[1] * n[2];
      break;
  }
  return view;
}

absl::StatusOr<RotationCheck> CheckRotation(const v1::ResolveRopeResponse& rope,
                                            const HeadsView& before,
                                            const HeadsView& after,
                                            std::int64_t start,
                                            int repositions) {
  const v1::RopeSpec& spec = rope.spec();
  if (spec.nope()) return Unsupported("an encoding without rotation");
  if (spec.has_xpos()) return Unsupported("xPos");
  if (spec.angle_precision() == v1::ANGLE_PRECISION_FLOAT32) {
    return Unsupported("float32 angles");
  }
  const std::int64_t pairs = spec.rotary_dim() / 2;
  // Token positions are the same on every axis, so that axes do not matter
  // unless the frequencies differ by them.
  if (rope.inv_freq_size() != pairs) {
    return Unsupported("frequencies that differ by head or axis");
  }
  if (before.tensor.shape != after.tensor.shape ||
      before.tensor.dtype != after.tensor.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "before is ", DtypeName(before.tensor.dtype),
        ShapeText(before.tensor.shape), ", after is ",
        DtypeName(after.tensor.dtype), ShapeText(after.tensor.shape)));
  }
  if (before.head_dim < spec.rotary_dim()) {
    return absl::InvalidArgumentError(absl::StrCat("head_dim ", before.head_dim,
                                                   " is less than rotary_dim ",
                                                   spec.rotary_dim()));
  }
  const v1::Pairing in = spec.pairing();
  const v1::Pairing out = spec.output_pairing() == v1::PAIRING_UNSPECIFIED
                              ? in
                              : spec.output_pairing();
  const std::int64_t slice = spec.slice() == v1::ROTARY_SLICE_TRAILING
                                 ? before.head_dim - spec.rotary_dim()
                                 : 0;
  RotationCheck result;
  Checker checker(before.tensor.dtype, rope.amplitude(), repositions, &result);
  const std::int64_t size =
      static_cast<std::int64_t>(DtypeSize(before.tensor.dtype));
  std::vector<long double> c(pairs), s(pairs);
  std::vector<double> angle_error(pairs);
  for (std::int64_t t = 0; t < before.tokens; ++t) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const long double angle = (spec.reverse() ? -1.0L : 1.0L) *
                                static_cast<long double>(start + t) *
                                rope.inv_freq(i);
      c[i] = rope.amplitude() * std::cos(angle);
      s[i] = rope.amplitude() * std::sin(angle);
      // The product has 64 bits.
      angle_error[i] = std::ldexp(std::fabs(static_cast<double>(angle)), -64);
    }
    for (std::int64_t b = 0; b < before.batch; ++b) {
      for (std::int64_t h = 0; h < before.heads; ++h) {
        const std::int64_t head = before.Offset(b, t, h);
        const std::int64_t rotated = head + slice;
        for (std::int64_t i = 0; i < pairs; ++i) {
          const Channels from = ChannelsOf(in, i, pairs);
          const Channels to = ChannelsOf(out, i, pairs);
          const long double x = ElementAt(before.tensor, rotated + from.x);
          const long double y = ElementAt(before.tensor, rotated + from.y);
          checker.Compare(x, c[i], -y, s[i], angle_error[i],
                          ElementAt(after.tensor, rotated + to.x),
                          rotated + to.x);
          checker.Compare(y, c[i], x, s[i], angle_error[i],
                          ElementAt(after.tensor, rotated + to.y),
                          rotated + to.y);
        }
        // The rest passes through bit for bit.
        for (std::int64_t channel = 0; channel < before.head_dim; ++channel) {
          if (channel == slice) channel += spec.rotary_dim();
          if (channel >= before.head_dim) break;
          ++result.elements;
          if (std::memcmp(before.tensor.bytes.data() + (head + channel) * size,
                          after.tensor.bytes.data() + (head + channel) * size,
                          static_cast<std::size_t>(size)) != 0) {
            checker.Wrong(head + channel);
          }
        }
      }
    }
  }
  return result;
}

absl::StatusOr<ScoreCheck> CheckScores(const HeadsView& q, const HeadsView& k,
                                       const HeadsView& moved_q,
                                       const HeadsView& moved_k) {
  if (q.tensor.shape != moved_q.tensor.shape ||
      k.tensor.shape != moved_k.tensor.shape || q.batch != k.batch ||
      q.tokens != k.tokens || q.head_dim != k.head_dim || k.heads == 0 ||
      q.heads % k.heads != 0 || q.tensor.dtype != moved_q.tensor.dtype ||
      k.tensor.dtype != moved_k.tensor.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scores of q ", ShapeText(q.tensor.shape), " and k ",
        ShapeText(k.tensor.shape), " with q ", ShapeText(moved_q.tensor.shape),
        " and k ", ShapeText(moved_k.tensor.shape), ": shapes disagree"));
  }
  ScoreCheck result;
  if (q.batch * q.tokens * q.heads == 0) return result;
  // A rotated value is off by half an ulp, that is by 2^-bits of it, and by
  // the arithmetic's 8 units (see Checker) of the pair's length; so is each
  // factor of each product, in both rotations.
  const auto unit = [](const HeadsView& view) {
    return std::ldexp(1.0, -SignificandBits(view.tensor.dtype)) +
           8 * 1.5 *
               std::ldexp(1.0,
                          view.tensor.dtype == v1::DTYPE_FLOAT64 ? -53 : -24);
  };
  const double relative = 2 * (unit(q) + unit(k)) * 1.01;  // second order
  constexpr std::int64_t kSamples = 20000;
  Random random(1);
  double squares = 0;
  for (std::int64_t n = 0; n < kSamples; ++n) {
    const std::int64_t b = random.Below(q.batch);
    const std::int64_t h = random.Below(q.heads);
    const std::int64_t q_head = q.Offset(b, random.Below(q.tokens), h);
    const std::int64_t k_head =
        k.Offset(b, random.Below(k.tokens), h / (q.heads / k.heads));
    double score = 0, moved = 0, q_squares = 0, k_squares = 0;
    for (std::int64_t i = 0; i < q.head_dim; ++i) {
      const double qi = ElementAt(q.tensor, q_head + i);
      const double ki = ElementAt(k.tensor, k_head + i);
      score += qi * ki;
      moved += ElementAt(moved_q.tensor, q_head + i) *
               ElementAt(moved_k.tensor, k_head + i);
      q_squares += qi * qi;
      k_squares += ki * ki;
    }
    // Cauchy-Schwarz: a rotation keeps the lengths, so that this bounds the
    // sums of |q_i k_i| in both rotations.
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
