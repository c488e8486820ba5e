#include "core/rope/move_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/error.h"
#include "core/rope/turns.h"
#include "core/rope/two_sum.h"
#include "core/rope/xpos.h"
#include "core/simd/trig_row.h"

namespace posenc::core {
namespace {

// The kernel reduces products below 2^51 quarter turns: positions up to 2^31
// stay below with every frequency that is served, distances up to 2^32 do not.
constexpr double kMaxTerm = 0x1p31;

// Frequencies as [heads][axes][pairs], 0 where a pair does not follow an axis.
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

// Centers may differ: they only add to the distance.
bool SameDecay(const RopeSpec& a, const RopeSpec& b) {
  if (!a.xpos.has_value() || !b.xpos.has_value()) {
    return a.xpos.has_value() == b.xpos.has_value();
  }
  return a.xpos->scale_base == b.xpos->scale_base &&
         a.xpos->gamma == b.xpos->gamma;
}

}  // namespace

bool Moves::shared() const {
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

MoveRows::Part::Part(const ResolvedRope& rope, std::size_t heads)
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

MoveRows::MoveRows(const ResolvedRope& from, const ResolvedRope& to,
                   std::shared_ptr<const Moves> moves)
    : moves_(std::move(moves)),
      pairs_(to.spec.nope ? 0 : to.pairs()),
      heads_(HeadsOf(from, to)),
      axes_(to.axes()),
      from_part_(from, heads_),
      to_part_(to, heads_),
      same_angles_(from_part_.inv_freq == to_part_.inv_freq &&
                   from_part_.sign == to_part_.sign &&
                   from_part_.float32 == to_part_.float32),
      same_decay_(SameDecay(from.spec, to.spec)),
      uniform_(same_angles_ && same_decay_ && !moves_->to.has_value() &&
               !moves_->shifts.has_value() &&
               !(to_part_.float32 && moves_->from.has_value())),
      ratio_(to.amplitude / from.amplitude),
      all_terms_(2 * to_part_.terms() + from_part_.terms()),
      from_(axes_),
      to_(axes_),
      to_error_(axes_),
      distance_(axes_),
      per_pair_(from_part_.float32 || to_part_.float32) {
  for (std::size_t h = 0; h < heads_; ++h) {
    for (const Part* part : {&to_part_, &from_part_, &to_part_}) {
      for (std::size_t i = 0; i < part->terms() * pairs_; ++i) {
        // A float32 angle is a position of frequency 1.
        const Turns turns = SplitTurns(
            part->float32 ? 1 : part->inv_freq[h * axes_ * pairs_ + i]);
        turns_hi_.push_back(turns.hi);
        turns_mid_.push_back(turns.mid);
        turns_lo_.push_back(turns.lo);
      }
    }
  }
  at_.resize(all_terms_ * (per_pair_ ? pairs_ : 1));
  if (!from_part_.decay.empty() || !to_part_.decay.empty()) {
    amplitudes_.resize(pairs_);
  }
}

void MoveRows::Read(std::int64_t b, std::int64_t t) {
  distance_exact_ = true;
  for (std::size_t i = 0; i < axes_; ++i) {
    const int a = static_cast<int>(i);
    from_[i] = moves_->from.has_value() ? moves_->from->at(a, b, t) : 0;
    ExactSum distance, to;
    if (moves_->to.has_value()) {
      to = {moves_->to->at(a, b, t), 0};
      distance = TwoSum(to.value, -from_[i]);
    } else {
      distance = {moves_->shifts.has_value() ? moves_->shifts->at(a, b, t)
                                             : moves_->shift,
                  0};
      to = TwoSum(from_[i], distance.value);
    }
    to_[i] = to.value;
    to_error_[i] = to.error;
    distance_[i] = distance.value;
    if (distance.error != 0 || std::fabs(distance.value) > kMaxTerm) {
      distance_exact_ = false;
    }
  }
}

void MoveRows::PutTerms(const Part& part, std::size_t h, std::size_t first,
                        double sign, const std::vector<double>& positions) {
  for (std::size_t a = 0; a < axes_ && !part.float32; ++a) {
    const double p = sign * part.sign * positions[a];
    if (per_pair_) {
      std::fill_n(at_.begin() + (first + a) * pairs_, pairs_, p);
    } else {
      at_[first + a] = p;
    }
  }
  for (std::size_t i = 0; i < pairs_ && part.float32; ++i) {
    float angle = 0;
    for (std::size_t a = 0; a < axes_; ++a) {
      angle += static_cast<float>(positions[a]) *
               static_cast<float>(part.inv_freq[(h * axes_ + a) * pairs_ + i]);
    }
    at_[first * pairs_ + i] = sign * part.sign * angle;
  }
}

void MoveRows::PlaceTerms(std::size_t h) {
  const bool float32 = to_part_.float32;
  // A float32 angle depends on where its position stands, if that is known.
  if (same_angles_ && (float32 ? !moves_->from.has_value() : distance_exact_)) {
    PutTerms(to_part_, h, 0, 1, distance_);
    terms_ = to_part_.terms();
    return;
  }
  PutTerms(to_part_, h, 0, 1, to_);
  PutTerms(from_part_, h, to_part_.terms(), -1, from_);
  terms_ = to_part_.terms() + from_part_.terms();
  const bool rounded = std::any_of(to_error_.begin(), to_error_.end(),
                                   [](double error) { return error != 0; });
  if (rounded && !float32) {
    PutTerms(to_part_, h, terms_, 1, to_error_);
    terms_ = all_terms_;
  }
}

long double MoveRows::DecayExponent(std::size_t pair) const {
  if (same_decay_) {
    const long double recentred = to_part_.center - from_part_.center;
    return (recentred - distance_[0]) * to_part_.decay[pair];
  }
  long double exponent = 0;
  if (!to_part_.decay.empty()) {
    exponent -= (to_[0] - to_part_.center) * to_part_.decay[pair];
  }
  if (!from_part_.decay.empty()) {
    exponent += (from_[0] - from_part_.center) * from_part_.decay[pair];
  }
  return exponent;
}

absl::Status MoveRows::CheckReach(std::int64_t batch, std::int64_t tokens) {
  if (amplitudes_.empty()) return absl::OkStatus();
  const std::int64_t rows = moves_->shared() ? 1 : batch;
  for (std::int64_t b = 0; b < rows; ++b) {
    for (std::int64_t t = 0; t < (uniform_ ? 1 : tokens); ++t) {
      Read(b, t);
      for (std::size_t i = 0; i < pairs_; ++i) {
        const auto exponent = static_cast<double>(DecayExponent(i));
        if (std::fabs(exponent) <= kMaxXPosExponent) continue;
        return MakeError(
            absl::StatusCode::kOutOfRange, ErrorReason::kPositionOutOfRange, "",
            absl::StrFormat("token %d of sequence %d moves by %.17g, which "
                            "scales its pair %d by e^%.1f for xPos; e^-87 to "
                            "e^87 is within float32",
                            t, b, distance_[0], i, exponent),
            {{"index", absl::StrCat(b * tokens + t)}});
      }
    }
  }
  return absl::OkStatus();
}

template <typename T>
void MoveRows::Evaluate(std::int64_t b, std::int64_t t, T* row) {
  Read(b, t);
  for (std::size_t i = 0; i < amplitudes_.size(); ++i) {
    amplitudes_[i] = static_cast<double>(ratio_ * std::exp(DecayExponent(i)));
  }
  simd::TrigRow trig = {};
  trig.n = pairs_;
  trig.position = at_.data();
  trig.position_axis_stride = per_pair_ ? pairs_ : 1;
  trig.position_pair_stride = per_pair_ ? 1 : 0;
  trig.amplitude = amplitudes_.empty() ? &ratio_ : amplitudes_.data();
  trig.amplitude_stride = amplitudes_.empty() ? 0 : 1;
  for (std::size_t h = 0; h < heads_; ++h) {
    PlaceTerms(h);
    trig.axes = terms_;
    trig.turns_hi = turns_hi_.data() + h * all_terms_ * pairs_;
    trig.turns_mid = turns_mid_.data() + h * all_terms_ * pairs_;
    trig.turns_lo = turns_lo_.data() + h * all_terms_ * pairs_;
    T* const cos = row + h * 2 * pairs_;
    simd::FillTrigRow(trig, cos, cos + pairs_);
  }
}

void MoveRows::Fill(std::int64_t b, std::int64_t t, float* row) {
  Evaluate(b, t, row);
}
void MoveRows::Fill(std::int64_t b, std::int64_t t, double* row) {
  Evaluate(b, t, row);
}

}  // namespace posenc::core
