#include "core/rope/cos_sin_evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/angle/cos_sin_row.h"
#include "core/error.h"
#include "core/rope/xpos.h"

namespace posenc::core {
namespace {

constexpr auto kRows = static_cast<std::int64_t>(DeltaRows::kRows);
constexpr std::int64_t kReach = kRows * kRows;  // of a base, in positions

// Rows are sums for factors up to this one, and from its inverse on: their
// products and errors are then normal floats.
constexpr double kMaxSumFactor = 0x1p96;

// position - from, if both are whole and it is from 0 on and small enough for
// anchors and their rows; else -1, as for positions that are NaN.
std::int64_t WholeOffset(double position, double from) {
  const double offset = position - from;
  if (!(offset >= 0 && offset < static_cast<double>(kReach))) return -1;
  // The difference may have lost a fraction.
  if (std::floor(position) != position) return -1;
  return static_cast<std::int64_t>(offset);
}

}  // namespace

CosSinEvaluator::CosSinEvaluator(const ResolvedRope& rope, Direction direction,
                                 TensorRole role, const QueryScale* query_scale)
    : CosSinEvaluator(rope, std::make_shared<const PreparedFrequencies>(rope),
                      direction, role, query_scale) {}

CosSinEvaluator::CosSinEvaluator(
    const ResolvedRope& rope,
    std::shared_ptr<const PreparedFrequencies> frequencies, Direction direction,
    TensorRole role, const QueryScale* query_scale)
    : pairs_(rope.spec.nope ? 0 : rope.pairs()),
      heads_(std::max(rope.heads, 1)),
      frequency_axes_(rope.frequency_axes),
      frequencies_(std::move(frequencies)),
      float32_angles_(rope.spec.angle_precision == AnglePrecision::kFloat32),
      negate_(rope.spec.reverse != (direction != Direction::kForward)),
      divide_(direction == Direction::kInverse),
      factor_(divide_ ? 1 / rope.attention_factor : rope.attention_factor),
      has_xpos_(rope.spec.xpos.has_value()),
      xpos_divides_(role == TensorRole::kKey),
      xpos_center_(has_xpos_ ? rope.spec.xpos->center : 0),
      xpos_scale_base_(
          has_xpos_ ? rope.spec.xpos->scale_base.value_or(kXPosScaleBase) : 1),
      has_query_scale_(query_scale != nullptr && role == TensorRole::kQuery),
      query_scale_(has_query_scale_ ? *query_scale : QueryScale{}) {
  const double factor = std::fabs(factor_);
  has_sums_ = !has_query_scale_ && factor <= kMaxSumFactor &&
              factor >= 1 / kMaxSumFactor;
}

double CosSinEvaluator::HeadScale(const double* positions) const {
  if (!has_query_scale_) return 1;
  // Padding before the first token has negative positions, for which the
  // logarithm may have no value: it counts as the first step.
  const double step = std::max(
      0.0,
      std::floor((positions[0] + static_cast<double>(query_scale_.offset)) /
                 query_scale_.floor_scale));
  // long double: unlike libm's double functions, the same on every CPU.
  const long double scale =
      1 + query_scale_.beta * std::log(1 + static_cast<long double>(step));
  return static_cast<double>(divide_ ? 1 / scale : scale);
}

absl::Status CheckXPosReach(const ResolvedRope& rope,
                            const TokenPositions& positions,
                            absl::string_view field, std::int64_t first) {
  if (!rope.spec.xpos.has_value()) return absl::OkStatus();
  const XPos& xpos = *rope.spec.xpos;
  const double gamma = xpos.gamma.value_or(kXPosGamma);
  const double scale_base = xpos.scale_base.value_or(kXPosScaleBase);
  // Pair 0 decays fastest, so it leaves float32 first.
  const double reach =
      kMaxXPosExponent * scale_base / -std::log(gamma / (1 + gamma));
  for (std::size_t i = 0; i < positions.values().size(); ++i) {
    const double p = positions.values()[i];
    if (std::fabs(p - xpos.center) > reach) {
      return MakeError(
          absl::StatusCode::kOutOfRange, ErrorReason::kPositionOutOfRange,
          std::string(field),
          absl::StrFormat("element %d is %s; xPos with scale_base %g leaves "
                          "float32 beyond %.0f positions from its center, %s",
                          first + i, PositionText(p), scale_base,
                          std::floor(reach), PositionText(xpos.center)),
          {{"index", absl::StrCat(first + i)}});
    }
  }
  return absl::OkStatus();
}

template <typename T>
void CosSinEvaluator::Row(const double* positions, T* row) const {
  const double factor = factor_ * HeadScale(positions);
  // Pairs are evaluated in steps whose positions, factors and float32 angles
  // fit on the stack. Angles that are sums over the axes are an exception: the
  // kernel finds the frequencies of the next axis all pairs_ further on, so it
  // needs all pairs at once. They have neither an axis for each pair nor xPos,
  // so nothing of them is on the stack.
  const bool summed = frequency_axes_ > 1 && !float32_angles_;
  const std::size_t step = summed ? pairs_ : std::min(pairs_, kStackPairs);

  double stack_positions[kStackPairs];
  double stack_factors[kStackPairs];
  for (std::size_t h = 0; h < heads_; ++h) {
    const std::size_t first = h * frequency_axes_ * pairs_;
    T* const cos = row + h * 2 * pairs_;
    T* const sin = cos + pairs_;
    for (std::size_t begin = 0; begin < pairs_; begin += step) {
      const std::size_t n = std::min(step, pairs_ - begin);
      simd::TrigRow trig = {};
      trig.n = n;
      trig.negate = negate_;
      trig.axes = summed ? frequency_axes_ : 1;
      trig.position = positions;
      trig.position_axis_stride = 1;
      frequencies_->quarter_turns.Point(float32_angles_ ? 0 : first + begin,
                                        &trig);
      if (float32_angles_) {
        for (std::size_t i = 0; i < n; ++i) {
          float angle = 0;
          for (std::size_t a = 0; a < frequency_axes_; ++a) {
            const std::size_t axis =
                frequencies_->axis_of_pair.empty()
                    ? a
                    : frequencies_->axis_of_pair[begin + i];
            angle +=
                static_cast<float>(positions[axis]) *
                frequencies_->float32_inv_freq[first + a * pairs_ + begin + i];
          }
          stack_positions[i] = angle;
        }
        trig.position = stack_positions;
        trig.position_pair_stride = 1;
      } else if (!frequencies_->axis_of_pair.empty()) {
        for (std::size_t i = 0; i < n; ++i) {
          stack_positions[i] = positions[frequencies_->axis_of_pair[begin + i]];
        }
        trig.position = stack_positions;
        trig.position_pair_stride = 1;
      }
      trig.factor = &factor;
      if (has_xpos_) {
        const double exponent =
            (positions[0] - xpos_center_) / xpos_scale_base_;
        const double sign = xpos_divides_ != divide_ ? -1 : 1;
        for (std::size_t i = 0; i < n; ++i) {
          stack_factors[i] = static_cast<double>(
              factor * std::exp(static_cast<long double>(sign) * exponent *
                                frequencies_->xpos_log_zeta[begin + i]));
        }
        trig.factor = stack_factors;
        trig.factor_stride = 1;
      }
      FillCosSinRow(trig, cos + begin, sin + begin);
    }
  }
}

bool CosSinEvaluator::HasConsecutiveRows(double position,
                                         std::int64_t n) const {
  // The first of them takes somewhat longer than a row of its own.
  constexpr std::int64_t kFewest = 4;
  // Whole positions, so that position + k is exact.
  return n >= kFewest && has_sums_ && std::floor(position) == position &&
         (std::fabs(position) + static_cast<double>(n)) *
                 frequencies_->fastest() <=
             DeltaRows::kMaxRadians &&
         frequencies_->HasDeltas(n);
}

bool CosSinEvaluator::HasKeptBase(double position) const {
  return position >= 0 && position < PreparedFrequencies::kKeptBases &&
         frequencies_->HasStrides();
}

void CosSinEvaluator::TakeKeptBase(double position, Anchor* anchor) const {
  const std::int64_t base = static_cast<std::int64_t>(position) / kReach;
  const double* row = frequencies_->bases().Row(static_cast<std::size_t>(base));
  if (factor_ != 1) {
    double* const scaled = anchor->own_base();
    std::transform(row, row + 2 * anchor->pitch_, scaled,
                   [this](double x) { return factor_ * x; });
    row = scaled;
  }
  anchor->StandAtBase(static_cast<double>(base * kReach), row);
}

std::int64_t CosSinEvaluator::Anchor::Left(double from) const {
  const std::int64_t offset = WholeOffset(from, position_);
  return offset >= 0 && offset < kRows ? kRows - offset : 0;
}

bool CosSinEvaluator::MoveAlong(double position, std::int64_t rows,
                                Anchor* anchor) const {
  const std::int64_t offset = WholeOffset(position, anchor->base_position_);
  if (offset < 0 || kRows - offset % kRows < rows ||
      !frequencies_->HasStrides()) {
    return false;
  }
  const DeltaRows& strides = frequencies_->strides();
  const std::int64_t stride = offset / kRows;
  anchor->position_ =
      anchor->base_position_ + static_cast<double>(stride * kRows);
  anchor->row_ = stride == 0 ? anchor->base_ : anchor->own_row();
  if (stride == 0) return true;
  simd::AngleSums sums = {};
  sums.cos = anchor->base_;
  sums.sin = anchor->base_ + anchor->pitch_;
  sums.deltas = strides.Row(static_cast<std::size_t>(stride));
  sums.pitch = strides.pitch();
  sums.rows = 1;
  sums.n = pairs_;
  simd::ActiveKernels().add_angles_f64(sums, anchor->own_row(),
                                       anchor->own_row() + anchor->pitch_);
  return true;
}

void CosSinEvaluator::MoveTo(double position, std::int64_t rows,
                             Anchor* anchor) const {
  if (anchor->Left(position) >= rows || MoveAlong(position, rows, anchor)) {
    return;
  }
  if (HasKeptBase(position)) {
    TakeKeptBase(position, anchor);
    if (MoveAlong(position, rows, anchor)) return;
  }
  simd::TrigRow trig = {};
  trig.position = &position;
  trig.axes = 1;
  trig.n = pairs_;
  trig.factor = &factor_;
  frequencies_->quarter_turns.Point(0, &trig);
  FillCosSinRow(trig, anchor->own_base(), anchor->own_base() + anchor->pitch_);
  anchor->StandAtBase(position, anchor->own_base());
}

void CosSinEvaluator::SetSums(double position, const Anchor& anchor,
                              simd::AngleSums* sums) const {
  const DeltaRows& deltas = frequencies_->deltas();
  sums->cos = anchor.row_;
  sums->sin = anchor.row_ + anchor.pitch_;
  sums->deltas =
      deltas.Row(static_cast<std::size_t>(position - anchor.position_));
  sums->pitch = deltas.pitch();
  sums->rows = 1;
  sums->n = pairs_;
  sums->error = DeltaRows::kError * std::fabs(factor_);
  sums->negate = negate_;
  sums->stream = false;
}

void CosSinEvaluator::ConsecutiveRows(double position, std::int64_t n,
                                      float* cos, float* sin,
                                      std::ptrdiff_t pitch, bool stream,
                                      Anchor* anchor) const {
  float row[2 * DeltaRows::kMaxPairs];
  while (n > 0) {
    MoveTo(position, 1, anchor);
    const std::int64_t rows = std::min(anchor->Left(position), n);
    simd::AngleSums sums;
    SetSums(position, *anchor, &sums);
    sums.rows = static_cast<std::size_t>(rows);
    sums.stream = stream;
    std::uint32_t in_doubt =
        simd::ActiveKernels().add_angles(sums, cos, sin, pitch);
    for (std::int64_t t = 0; in_doubt != 0; ++t, in_doubt >>= 1) {
      if ((in_doubt & 1) == 0) continue;
      // It goes where the other may have been streamed to: the order of a
      // thread's writes to one place is kept without end_streams.
      const double token = position + static_cast<double>(t);
      Row(&token, row);
      std::memcpy(cos + t * pitch, row, pairs_ * sizeof(float));
      std::memcpy(sin + t * pitch, row + pairs_, pairs_ * sizeof(float));
    }
    cos += rows * pitch;
    sin += rows * pitch;
    position += static_cast<double>(rows);
    n -= rows;
  }
  if (stream) simd::ActiveKernels().end_streams();
}

template void CosSinEvaluator::Row(const double* positions, float* row) const;
template void CosSinEvaluator::Row(const double* positions, double* row) const;

}  // namespace posenc::core
