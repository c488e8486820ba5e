#include "core/rope/cos_sin_evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/angle/cos_sin_row.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/rope/xpos.h"
#include "core/simd/dispatch.h"
#include "core/simd/kernels.h"

namespace posenc::core {
namespace {

constexpr auto kRows = static_cast<std::int64_t>(DeltaRows::kRows);

// Rows are computed from anchors only if the factor of cosines and sines is
// within 1 / kMaxSumFactor .. kMaxSumFactor. With such a factor, no value
// overflows float32, and the least magnitude of the quick check
// (simd/kernels_doubt.inl) is a normal float32 number.
constexpr double kMaxSumFactor = 0x1p96;

}  // namespace

CosSinEvaluator::CosSinEvaluator(const ResolvedRope& rope, Direction direction,
                                 TensorRole role, const QueryScale* query_scale)
    : CosSinEvaluator(std::make_shared<const PreparedRope>(rope), direction,
                      role, query_scale) {}

CosSinEvaluator::CosSinEvaluator(std::shared_ptr<const PreparedRope> prepared,
                                 Direction direction, TensorRole role,
                                 const QueryScale* query_scale)
    : prepared_(std::move(prepared)),
      heads_(std::max(prepared_->rope.heads, 1)),
      float32_angles_(prepared_->rope.spec.angle_precision ==
                      AnglePrecision::kFloat32),
      negate_(prepared_->rope.spec.reverse !=
              (direction != Direction::kForward)),
      divide_(direction == Direction::kInverse),
      factor_(divide_ ? 1 / prepared_->rope.attention_factor
                      : prepared_->rope.attention_factor),
      xpos_divides_(role == TensorRole::kKey) {
  if (query_scale != nullptr && role == TensorRole::kQuery) {
    query_scale_ = *query_scale;
  }
  const double factor = std::fabs(factor_);
  has_sums_ = prepared_->can_have_deltas() && !query_scale_ &&
              factor <= kMaxSumFactor && factor >= 1 / kMaxSumFactor;
}

double CosSinEvaluator::HeadScale(const double* positions) const {
  if (!query_scale_) return 1;
  // Padding before the first token has negative positions. Negative steps
  // become 0, because the logarithm below may not exist for them.
  const double step = std::max(
      0.0,
      std::floor((positions[0] + static_cast<double>(query_scale_->offset)) /
                 query_scale_->floor_scale));
  // The long double functions of libm give the same result on every CPU, unlike
  // the double functions.
  const long double scale =
      1 + query_scale_->beta * std::log(1 + static_cast<long double>(step));
  return static_cast<double>(divide_ ? 1 / scale : scale);
}

absl::Status CheckXPosReach(const ResolvedRope& rope,
                            const TokenPositions& positions,
                            absl::string_view field, std::int64_t first) {
  if (!rope.spec.xpos.has_value()) return absl::OkStatus();
  const XPos& xpos = *rope.spec.xpos;
  const double gamma = xpos.gamma.value_or(kXPosGamma);
  const double scale_base = xpos.scale_base.value_or(kXPosScaleBase);
  // The xPos factor is multiplied by the attention factor. The xPos factor of
  // pair 0 decays fastest, so the product of pair 0 is the first to leave the
  // range of float32.
  const double reach =
      (kMaxXPosExponent - std::fabs(std::log(rope.attention_factor))) *
      scale_base / -std::log(gamma / (1 + gamma));
  for (std::size_t i = 0; i < positions.values().size(); ++i) {
    const double p = positions.values()[i];
    if (std::fabs(p - xpos.center) > reach) {
      const auto index = first + static_cast<std::int64_t>(i);
      return PositionOutOfRange(
          field,
          absl::StrFormat("element %d is %s; xPos with scale_base %g leaves "
                          "float32 beyond %.0f positions from its center, %s",
                          index, PlainNumber(p), scale_base, std::floor(reach),
                          PlainNumber(xpos.center)),
          index);
    }
  }
  return absl::OkStatus();
}

template <typename T>
void CosSinEvaluator::Row(const double* positions, T* row) const {
  const double factor = factor_ * HeadScale(positions);
  const ResolvedRope& rope = prepared_->rope;
  const std::vector<std::int32_t>& axis_of_pair = rope.axis_of_pair;
  const std::size_t pairs = prepared_->pairs;
  const auto axes = static_cast<std::size_t>(rope.frequency_axes);
  // Pairs are evaluated in steps whose positions, factors and float32 angles
  // fit on the stack. If angles are sums over the axes, all pairs must be in
  // one step, because the kernel expects the frequencies of the next axis after
  // all pairs of one axis. An encoding with such angles has neither
  // axis_of_pair nor xPos, so its rows do not use the stack.
  const bool summed = axes > 1 && !float32_angles_;
  const std::size_t step = summed ? pairs : std::min(pairs, kStackPairs);

  double stack_positions[kStackPairs];
  double stack_factors[kStackPairs];
  for (std::size_t h = 0; h < heads_; ++h) {
    const std::size_t first = h * axes * pairs;
    T* const cos = row + h * 2 * pairs;
    T* const sin = cos + pairs;
    for (std::size_t begin = 0; begin < pairs; begin += step) {
      const std::size_t n = std::min(step, pairs - begin);
      simd::TrigRow trig = {};
      trig.n = n;
      trig.negate = negate_;
      trig.axes = summed ? axes : 1;
      trig.position = positions;
      trig.position_axis_stride = 1;
      prepared_->quarter_turns.Point(float32_angles_ ? 0 : first + begin,
                                     &trig);
      if (float32_angles_) {
        for (std::size_t i = 0; i < n; ++i) {
          float angle = 0;
          for (std::size_t a = 0; a < axes; ++a) {
            const std::size_t axis =
                axis_of_pair.empty() ? a : axis_of_pair[begin + i];
            angle += static_cast<float>(positions[axis]) *
                     prepared_->float32_inv_freq[first + a * pairs + begin + i];
          }
          stack_positions[i] = angle;
        }
        trig.position = stack_positions;
        trig.position_pair_stride = 1;
      } else if (!axis_of_pair.empty()) {
        for (std::size_t i = 0; i < n; ++i) {
          stack_positions[i] = positions[axis_of_pair[begin + i]];
        }
        trig.position = stack_positions;
        trig.position_pair_stride = 1;
      }
      trig.factor = &factor;
      if (rope.spec.xpos) {
        const double exponent =
            (positions[0] - rope.spec.xpos->center) /
            rope.spec.xpos->scale_base.value_or(kXPosScaleBase);
        const double sign = xpos_divides_ != divide_ ? -1 : 1;
        for (std::size_t i = 0; i < n; ++i) {
          stack_factors[i] = static_cast<double>(
              factor * std::exp(static_cast<long double>(sign) * exponent *
                                prepared_->xpos_log_zeta[begin + i]));
        }
        trig.factor = stack_factors;
        trig.factor_stride = 1;
      }
      FillCosSinRow(trig, cos + begin, sin + begin);
    }
  }
}

bool CosSinEvaluator::Follow(double position, std::int64_t n) const {
  // Runs of fewer rows than this do not use an anchor, because the first row
  // from an anchor takes somewhat longer than a direct evaluation.
  constexpr std::int64_t kFewest = 4;
  // Positions must be whole, so that position + k is exact.
  return n >= kFewest && has_sums_ && std::floor(position) == position &&
         (std::fabs(position) + static_cast<double>(n)) *
                 prepared_->fastest() <=
             DeltaRows::kMaxRadians;
}

std::int64_t CosSinEvaluator::MoveTo(double position, Anchor* anchor) const {
  // Number of consecutive rows that can be computed from one base.
  constexpr auto kReach = static_cast<double>(kRows * kRows);
  double offset = position - anchor->base_position_;  // NaN: there is no base
  if (!(offset >= 0 && offset < kReach)) {
    FillCosSinRow(prepared_->quarter_turns.Row(&position, &factor_),
                  anchor->base(), anchor->base() + anchor->pitch_);
    anchor->base_position_ = position;
    offset = 0;
  }
  const std::int64_t stride = static_cast<std::int64_t>(offset) / kRows;
  const double start =
      anchor->base_position_ + static_cast<double>(stride * kRows);
  if (start != anchor->position_ || offset == 0) {
    simd::AngleSums sums = {};
    sums.cos = anchor->base();
    sums.sin = anchor->base() + anchor->pitch_;
    sums.deltas =
        prepared_->deltas().anchors.Row(static_cast<std::size_t>(stride));
    sums.pitch = anchor->pitch_;
    sums.rows = 1;
    sums.n = prepared_->pairs;
    simd::ActiveKernels().add_angles_f64(sums, anchor->row(),
                                         anchor->row() + anchor->pitch_);
    anchor->position_ = start;
  }
  return kRows - static_cast<std::int64_t>(position - start);
}

void CosSinEvaluator::FollowingRows(double position, std::int64_t n, float* cos,
                                    float* sin, std::ptrdiff_t pitch,
                                    bool stream, Anchor* anchor) const {
  const DeltaRows& deltas = prepared_->deltas().rows;
  simd::AngleSums sums = {};
  sums.cos = anchor->row();
  sums.sin = anchor->row() + anchor->pitch_;
  sums.pitch = anchor->pitch_;
  sums.n = prepared_->pairs;
  sums.error = DeltaRows::kError * std::fabs(factor_);
  sums.negate = negate_;
  sums.stream = stream;
  while (n > 0) {
    const std::int64_t left = MoveTo(position, anchor);
    const std::int64_t rows = std::min(left, n);
    sums.deltas = deltas.Row(static_cast<std::size_t>(kRows - left));
    sums.rows = static_cast<std::size_t>(rows);
    std::uint32_t in_doubt =
        simd::ActiveKernels().add_angles(sums, cos, sin, pitch);
    for (std::int64_t t = 0; in_doubt != 0; ++t, in_doubt >>= 1) {
      // Overwrites a row that add_angles may have written with non-temporal
      // stores. No end_streams is needed between the two writes, because a
      // thread's writes to one address stay in order.
      if ((in_doubt & 1) != 0) {
        OwnRow(position + static_cast<double>(t), cos + t * pitch,
               sin + t * pitch);
      }
    }
    cos += rows * pitch;
    sin += rows * pitch;
    position += static_cast<double>(rows);
    n -= rows;
  }
}

void CosSinEvaluator::OwnRow(double position, float* cos, float* sin) const {
  float row[2 * DeltaRows::kMaxPairs];
  Row(&position, row);
  std::memcpy(cos, row, prepared_->pairs * sizeof(float));
  std::memcpy(sin, row + prepared_->pairs, prepared_->pairs * sizeof(float));
}

void CosSinEvaluator::Rows(absl::Span<const double> positions, float* cos,
                           float* sin, std::ptrdiff_t pitch, bool stream,
                           Anchor* anchor) const {
  while (!positions.empty()) {
    std::int64_t n = RunLength(positions);
    if (Follow(positions[0], n)) {
      FollowingRows(positions[0], n, cos, sin, pitch, stream, anchor);
    } else {
      n = 1;
      OwnRow(positions[0], cos, sin);
    }
    cos += n * pitch;
    sin += n * pitch;
    positions.remove_prefix(static_cast<std::size_t>(n));
  }
  if (stream) simd::ActiveKernels().end_streams();
}

template void CosSinEvaluator::Row(const double* positions, float* row) const;
template void CosSinEvaluator::Row(const double* positions, double* row) const;

}  // namespace posenc::core
