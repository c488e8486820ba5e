#include "core/rope/table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/error.h"
#include "core/rope/turns.h"
#include "core/rope/xpos.h"
#include "core/simd/trig_row.h"

namespace posenc::core {
namespace {

// Pairs whose positions, factors and angles fit on the stack.
constexpr std::size_t kChunk = 256;

}  // namespace

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
    // The float32 angle is then a position of frequency 1.
    const Turns one = SplitTurns(1);
    hi.assign(kChunk, one.hi);
    mid.assign(kChunk, one.mid);
    lo.assign(kChunk, one.lo);
    return;
  }
  for (const double w : rope.inv_freq) {
    const Turns turns = SplitTurns(w);
    hi.push_back(turns.hi);
    mid.push_back(turns.mid);
    lo.push_back(turns.lo);
  }
}

RotaryRows::RotaryRows(const ResolvedRope& rope, Direction direction,
                       TensorRole role, const QueryScale* query_scale)
    : RotaryRows(rope, std::make_shared<const PreparedFrequencies>(rope),
                 direction, role, query_scale) {}

RotaryRows::RotaryRows(const ResolvedRope& rope,
                       std::shared_ptr<const PreparedFrequencies> frequencies,
                       Direction direction, TensorRole role,
                       const QueryScale* query_scale)
    : pairs_(rope.spec.nope ? 0 : rope.pairs()),
      heads_(std::max(rope.heads, 1)),
      frequency_axes_(rope.frequency_axes),
      frequencies_(std::move(frequencies)),
      float32_angles_(rope.spec.angle_precision == AnglePrecision::kFloat32),
      negate_(rope.spec.reverse != (direction != Direction::kForward)),
      divide_(direction == Direction::kInverse),
      amplitude_(rope.amplitude),
      has_xpos_(rope.spec.xpos.has_value()),
      xpos_divides_(role == TensorRole::kKey),
      xpos_center_(has_xpos_ ? rope.spec.xpos->center : 0),
      xpos_scale_base_(
          has_xpos_ ? rope.spec.xpos->scale_base.value_or(kXPosScaleBase) : 1),
      has_query_scale_(query_scale != nullptr && role == TensorRole::kQuery),
      query_scale_(has_query_scale_ ? *query_scale : QueryScale{}) {}

double RotaryRows::HeadScale(const double* positions) const {
  if (!has_query_scale_) return 1;
  // Padding before the first token counts as the first step: the logarithm
  // has no value there.
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
                            std::int64_t first) {
  if (!rope.spec.xpos.has_value()) return absl::OkStatus();
  const XPos& xpos = *rope.spec.xpos;
  const double gamma = xpos.gamma.value_or(kXPosGamma);
  const double scale_base = xpos.scale_base.value_or(kXPosScaleBase);
  // Pair 0 decays fastest.
  const double reach =
      kMaxXPosExponent * scale_base / -std::log(gamma / (1 + gamma));
  for (std::size_t i = 0; i < positions.values().size(); ++i) {
    const double p = positions.values()[i];
    if (std::fabs(p - xpos.center) > reach) {
      return MakeError(
          absl::StatusCode::kOutOfRange, ErrorReason::kPositionOutOfRange,
          "ids",
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
void RotaryRows::Row(const double* positions, T* row) const {
  const double head_scale = HeadScale(positions);
  const double amplitude = (divide_ ? 1 / amplitude_ : amplitude_) * head_scale;
  // Angles that are sums over the axes need all their pairs at once; they have
  // neither axes per pair nor xPos, so nothing of them is on the stack.
  const bool summed = frequency_axes_ > 1 && !float32_angles_;
  const std::size_t step = summed ? pairs_ : std::min(pairs_, kChunk);

  double chunk_positions[kChunk];
  double chunk_amplitudes[kChunk];
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
      const std::size_t turns = float32_angles_ ? 0 : first + begin;
      trig.turns_hi = frequencies_->hi.data() + turns;
      trig.turns_mid = frequencies_->mid.data() + turns;
      trig.turns_lo = frequencies_->lo.data() + turns;
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
          chunk_positions[i] = angle;
        }
        trig.position = chunk_positions;
        trig.position_pair_stride = 1;
      } else if (!frequencies_->axis_of_pair.empty()) {
        for (std::size_t i = 0; i < n; ++i) {
          chunk_positions[i] = positions[frequencies_->axis_of_pair[begin + i]];
        }
        trig.position = chunk_positions;
        trig.position_pair_stride = 1;
      }
      trig.amplitude = &amplitude;
      if (has_xpos_) {
        const double exponent =
            (positions[0] - xpos_center_) / xpos_scale_base_;
        const double sign = xpos_divides_ != divide_ ? -1 : 1;
        for (std::size_t i = 0; i < n; ++i) {
          chunk_amplitudes[i] = static_cast<double>(
              amplitude * std::exp(static_cast<long double>(sign) * exponent *
                                   frequencies_->xpos_log_zeta[begin + i]));
        }
        trig.amplitude = chunk_amplitudes;
        trig.amplitude_stride = 1;
      }
      simd::FillTrigRow(trig, cos + begin, sin + begin);
    }
  }
}

template void RotaryRows::Row(const double* positions, float* row) const;
template void RotaryRows::Row(const double* positions, double* row) const;

Shape TableShape(const ResolvedRope& rope, std::int64_t rows,
                 TableLayout layout) {
  const std::int64_t pairs = rope.spec.nope ? 0 : rope.pairs();
  Shape shape;
  if (rope.heads > 0) shape.push_back(rope.heads);
  shape.push_back(rows);
  switch (layout) {
    case TableLayout::kHalf:
      shape.push_back(pairs);
      break;
    case TableLayout::kDuplicated:
    case TableLayout::kPairRepeated:
      shape.push_back(2 * pairs);
      break;
    case TableLayout::kComplex:
      shape.push_back(pairs);
      shape.push_back(2);
      break;
  }
  return shape;
}

namespace {

// Element of a table where value i of `pairs` of one row goes: its first place,
// and the distance of the second (0: none).
struct Spread {
  std::size_t width;  // elements of one row
  std::size_t step;   // between pairs
  std::size_t again;  // to the second copy
};

Spread SpreadOf(TableLayout layout, std::size_t pairs) {
  switch (layout) {
    case TableLayout::kDuplicated:
      return {2 * pairs, 1, pairs};
    case TableLayout::kPairRepeated:
      return {2 * pairs, 2, 1};
    case TableLayout::kComplex:
      return {2 * pairs, 2, 0};
    case TableLayout::kHalf:
      break;
  }
  return {pairs, 1, 0};
}

// T: how rows are evaluated; stored with one rounding to the tensor's dtype.
template <typename T>
void FillTable(const RotaryRows& rows, const TokenPositions& positions,
               std::int64_t tokens, TableLayout layout, const TensorView& cos,
               const TensorView& sin) {
  const std::size_t pairs = rows.pairs();
  const Spread spread = SpreadOf(layout, pairs);
  const bool complex = layout == TableLayout::kComplex;
  // Rows of 16 bits are evaluated in float64 and rounded once.
  const bool direct = DtypeSize(cos.dtype) == sizeof(T);
  const auto put = [&](const TensorView& out, std::size_t i, T value) {
    if (direct) {
      std::memcpy(static_cast<char*>(out.data) + i * sizeof(T), &value,
                  sizeof(T));
    } else {
      StoreDouble(value, out, static_cast<std::int64_t>(i));
    }
  };
  std::vector<T> row(rows.heads() * 2 * pairs);
  std::vector<double> at(positions.axes());
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int a = 0; a < positions.axes(); ++a) at[a] = positions.at(a, 0, t);
    rows.Row(at.data(), row.data());
    for (std::size_t h = 0; h < rows.heads(); ++h) {
      const T* const c = row.data() + h * 2 * pairs;
      const T* const s = c + pairs;
      const std::size_t base = (h * tokens + t) * spread.width;
      for (std::size_t i = 0; i < pairs; ++i) {
        const std::size_t place = base + i * spread.step;
        put(cos, place, c[i]);
        put(complex ? cos : sin, complex ? place + 1 : place, s[i]);
        if (spread.again != 0) {
          put(cos, place + spread.again, c[i]);
          put(sin, place + spread.again, s[i]);
        }
      }
    }
  }
}

}  // namespace

absl::Status BuildRopeTable(const ResolvedRope& rope,
                            const TokenPositions& positions, TableLayout layout,
                            TensorRole role, const TensorView& cos,
                            const TensorView& sin) {
  if (!IsFloating(cos.dtype)) {
    return FieldInvalid("dtype", absl::StrCat(DtypeName(cos.dtype),
                                              " cannot hold cosines; use "
                                              "float32, float16, bfloat16 or "
                                              "float64"));
  }
  const absl::Status reach = CheckXPosReach(rope, positions);
  if (!reach.ok()) return Prefixed("positions", reach);
  const std::int64_t tokens = positions.tokens();
  const RotaryRows rows(rope, Direction::kForward, role, nullptr);
  if (cos.dtype == Dtype::kFloat32) {
    FillTable<float>(rows, positions, tokens, layout, cos, sin);
  } else {
    FillTable<double>(rows, positions, tokens, layout, cos, sin);
  }
  return absl::OkStatus();
}

}  // namespace posenc::core
