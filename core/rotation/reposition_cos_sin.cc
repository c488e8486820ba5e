#include "core/rotation/reposition_cos_sin.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/angle/cos_sin_row.h"
#include "core/angle/quarter_turns.h"
#include "core/angle/two_sum.h"
#include "core/base/error.h"
#include "core/rope/xpos.h"

// The angle of a token is a sum of terms position * frequency, and the kernel
// adds up any number of terms exactly. There are three ways to write the sum;
// the code uses the first way that is exact:
//
//   1. (p' - p) * w'                    if both encodings have the same angles
//                                       and p' - p is exact: one set of terms
//   2. p' * w'  -  p * w
//   3. p' * w'  -  p * w  +  e * w'     p' = p + shift was rounded, and lost e
//
// So quarter_turns_ contains the frequencies w', w, w' in this order, and
// SetTerms sets how many of them are used. With float32 angles each term is the
// angle float32(p * w) of a pair, with frequency 1. Float32 angles have no term
// e * w', because the frameworks also round p'.
namespace posenc::core {
namespace {

// The kernel can reduce only products below 2^51 quarter turns. Products of
// positions up to 2^31 stay below this limit with every valid frequency.
// Products of distances up to 2^32 may exceed this limit, so p' and p are
// separate terms for a distance above 2^31.
constexpr double kMaxTerm = 0x1p31;

// Returns the frequencies in the shape [heads][axes][pairs]. A frequency is 0
// if its pair does not follow the axis.
std::vector<double> SpreadFrequencies(const ResolvedRope& rope,
                                      std::size_t heads) {
  const std::size_t pairs = rope.spec.nope ? 0 : rope.pairs();
  const std::size_t axes = rope.axes();
  std::vector<double> spread(heads * axes * pairs);
  for (std::size_t h = 0; h < heads; ++h) {
    const std::size_t row = rope.heads > 0 ? h * rope.frequency_axes : 0;
    for (std::size_t a = 0; a < axes; ++a) {
      for (std::size_t i = 0; i < pairs; ++i) {
        double& w = spread[(h * axes + a) * pairs + i];
        if (rope.axis_of_pair.empty()) {
          w = rope.inv_freq[(row + a) * pairs + i];
        } else if (rope.axis_of_pair[i] == static_cast<std::int32_t>(a)) {
          w = rope.inv_freq[row * pairs + i];
        }
      }
    }
  }
  return spread;
}

std::size_t HeadsOf(const ResolvedRope& a, const ResolvedRope& b) {
  return std::max({a.heads, b.heads, 1});
}

// True if the ratio of the xPos factors depends only on the distance. Centers
// may differ, because they only add a constant to the distance.
bool SameDecay(const RopeSpec& a, const RopeSpec& b) {
  if (!a.xpos.has_value() || !b.xpos.has_value()) {
    return a.xpos.has_value() == b.xpos.has_value();
  }
  return a.xpos->scale_base == b.xpos->scale_base &&
         a.xpos->gamma == b.xpos->gamma;
}

}  // namespace

bool PositionChange::shared() const {
  return (!from.has_value() || from->shared()) &&
         (!to.has_value() || to->shared()) &&
         (!shifts.has_value() || shifts->shared());
}

std::string StartDependence(const ResolvedRope& from, const ResolvedRope& to) {
  const std::size_t heads = HeadsOf(from, to);
  const std::vector<double> old_freq = SpreadFrequencies(from, heads);
  const std::vector<double> new_freq = SpreadFrequencies(to, heads);
  const auto [old_w, new_w] =
      std::mismatch(old_freq.begin(), old_freq.end(), new_freq.begin());
  if (old_w != old_freq.end()) {
    return absl::StrCat("frequencies (pair ",
                        (old_w - old_freq.begin()) % from.pairs(), " has ",
                        NumberText(*old_w), " and ", NumberText(*new_w), ")");
  }
  if (from.spec.reverse != to.spec.reverse) return "sign (reverse)";
  if (from.spec.angle_precision != to.spec.angle_precision) {
    return "angle_precision";
  }
  if (!SameDecay(from.spec, to.spec)) return "xpos";
  return "";
}

RepositionCosSin::Encoding::Encoding(const ResolvedRope& rope,
                                     std::size_t heads)
    : axes(rope.axes()),
      sign(rope.spec.reverse ? -1 : 1),
      float32(rope.spec.angle_precision == AnglePrecision::kFloat32),
      inv_freq(SpreadFrequencies(rope, heads)) {
  if (!rope.spec.xpos.has_value()) return;
  const XPos& xpos = *rope.spec.xpos;
  const long double scale_base = xpos.scale_base.value_or(kXPosScaleBase);
  center = xpos.center;
  for (std::int32_t i = 0; i < rope.pairs(); ++i) {
    decay.push_back(XPosLogZeta(xpos, i, rope.pairs()) / scale_base);
  }
}

RepositionCosSin::RepositionCosSin(const ResolvedRope& from,
                                   const ResolvedRope& to,
                                   std::shared_ptr<const PositionChange> change)
    : change_(std::move(change)),
      pairs_(to.spec.nope ? 0 : to.pairs()),
      heads_(HeadsOf(from, to)),
      axes_(to.axes()),
      from_(from, heads_),
      to_(to, heads_),
      same_angles_(from_.inv_freq == to_.inv_freq && from_.sign == to_.sign &&
                   from_.float32 == to_.float32),
      same_decay_(SameDecay(from.spec, to.spec)),
      uniform_(same_angles_ && same_decay_ && !change_->to.has_value() &&
               !change_->shifts.has_value() &&
               !(to_.float32 && change_->from.has_value())),
      ratio_(to.attention_factor / from.attention_factor),
      all_terms_(2 * to_.terms() + from_.terms()),
      old_(axes_),
      new_(axes_),
      new_error_(axes_),
      distance_(axes_),
      per_pair_(from_.float32 || to_.float32) {
  for (std::size_t h = 0; h < heads_; ++h) {
    for (const Encoding* encoding : {&to_, &from_, &to_}) {
      for (std::size_t i = 0; i < encoding->terms() * pairs_; ++i) {
        // A float32 angle is a term with frequency 1.
        quarter_turns_.Append(SplitQuarterTurns(
            encoding->float32 ? 1
                              : encoding->inv_freq[h * axes_ * pairs_ + i]));
      }
    }
  }
  at_.resize(all_terms_ * (per_pair_ ? pairs_ : 1));
  if (!from_.decay.empty() || !to_.decay.empty()) {
    factors_.resize(pairs_);
  }
}

void RepositionCosSin::Read(std::int64_t b, std::int64_t t) {
  distance_exact_ = true;
  for (std::size_t i = 0; i < axes_; ++i) {
    const int a = static_cast<int>(i);
    old_[i] = change_->from.has_value() ? change_->from->at(a, b, t) : 0;
    ExactSum distance, to;
    if (change_->to.has_value()) {
      to = {change_->to->at(a, b, t), 0};
      distance = TwoSum(to.value, -old_[i]);
    } else {
      distance = {change_->shifts.has_value() ? change_->shifts->at(a, b, t)
                                              : change_->shift,
                  0};
      to = TwoSum(old_[i], distance.value);
    }
    new_[i] = to.value;
    new_error_[i] = to.error;
    distance_[i] = distance.value;
    if (distance.error != 0 || std::fabs(distance.value) > kMaxTerm) {
      distance_exact_ = false;
    }
  }
}

void RepositionCosSin::WriteTerms(const Encoding& encoding, std::size_t h,
                                  std::size_t first, double sign,
                                  const std::vector<double>& positions) {
  for (std::size_t a = 0; a < axes_ && !encoding.float32; ++a) {
    const double p = sign * encoding.sign * positions[a];
    if (per_pair_) {
      std::fill_n(at_.begin() + (first + a) * pairs_, pairs_, p);
    } else {
      at_[first + a] = p;
    }
  }
  for (std::size_t i = 0; i < pairs_ && encoding.float32; ++i) {
    float angle = 0;
    for (std::size_t a = 0; a < axes_; ++a) {
      angle +=
          static_cast<float>(positions[a]) *
          static_cast<float>(encoding.inv_freq[(h * axes_ + a) * pairs_ + i]);
    }
    at_[first * pairs_ + i] = sign * encoding.sign * angle;
  }
}

void RepositionCosSin::SetTerms(std::size_t h) {
  const bool float32 = to_.float32;
  // float32(p' w) - float32(p w) is not float32((p' - p) w). So if p is known,
  // the two float32 angles are separate terms.
  if (same_angles_ &&
      (float32 ? !change_->from.has_value() : distance_exact_)) {
    WriteTerms(to_, h, 0, 1, distance_);
    terms_ = to_.terms();
    return;
  }
  WriteTerms(to_, h, 0, 1, new_);
  WriteTerms(from_, h, to_.terms(), -1, old_);
  terms_ = to_.terms() + from_.terms();
  const bool rounded = std::any_of(new_error_.begin(), new_error_.end(),
                                   [](double error) { return error != 0; });
  if (rounded && !float32) {
    WriteTerms(to_, h, terms_, 1, new_error_);
    terms_ = all_terms_;
  }
}

long double RepositionCosSin::DecayExponent(std::size_t pair) const {
  if (same_decay_) {
    const long double recentred = to_.center - from_.center;
    return (recentred - distance_[0]) * to_.decay[pair];
  }
  long double exponent = 0;
  if (!to_.decay.empty()) {
    exponent -= (new_[0] - to_.center) * to_.decay[pair];
  }
  if (!from_.decay.empty()) {
    exponent += (old_[0] - from_.center) * from_.decay[pair];
  }
  return exponent;
}

absl::Status RepositionCosSin::CheckReach(std::int64_t batch,
                                          std::int64_t tokens) {
  if (factors_.empty()) return absl::OkStatus();
  const std::int64_t sequences = change_->shared() ? 1 : batch;
  for (std::int64_t b = 0; b < sequences; ++b) {
    for (std::int64_t t = 0; t < (uniform_ ? 1 : tokens); ++t) {
      Read(b, t);
      for (std::size_t i = 0; i < pairs_; ++i) {
        const double exponent =
            static_cast<double>(DecayExponent(i)) + std::log(ratio_);
        if (std::fabs(exponent) <= kMaxXPosExponent) continue;
        return PositionOutOfRange(
            "",
            absl::StrFormat("token %d of sequence %d moves by %.17g, which "
                            "scales its pair %d by e^%.1f for xPos; e^-87 to "
                            "e^87 is within float32",
                            t, b, distance_[0], i, exponent),
            b * tokens + t);
      }
    }
  }
  return absl::OkStatus();
}

template <typename T>
void RepositionCosSin::Evaluate(std::int64_t b, std::int64_t t, T* row) {
  Read(b, t);
  for (std::size_t i = 0; i < factors_.size(); ++i) {
    factors_[i] = static_cast<double>(ratio_ * std::exp(DecayExponent(i)));
  }
  simd::TrigRow trig = {};
  trig.n = pairs_;
  trig.position = at_.data();
  trig.position_axis_stride = per_pair_ ? pairs_ : 1;
  trig.position_pair_stride = per_pair_ ? 1 : 0;
  trig.factor = factors_.empty() ? &ratio_ : factors_.data();
  trig.factor_stride = factors_.empty() ? 0 : 1;
  for (std::size_t h = 0; h < heads_; ++h) {
    SetTerms(h);
    trig.axes = terms_;
    quarter_turns_.Point(h * all_terms_ * pairs_, &trig);
    T* const cos = row + h * 2 * pairs_;
    FillCosSinRow(trig, cos, cos + pairs_);
  }
}

void RepositionCosSin::Fill(std::int64_t b, std::int64_t t, float* row) {
  Evaluate(b, t, row);
}
void RepositionCosSin::Fill(std::int64_t b, std::int64_t t, double* row) {
  Evaluate(b, t, row);
}

}  // namespace posenc::core
