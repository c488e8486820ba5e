#include "client/tools/diagnosis/key_motion.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/functional/function_ref.h"
#include "client/tools/check/element.h"

namespace posenc::cli {
namespace {

// Bounds on a pair's error, in ulps. They depend on the engine's tables of
// cosines and sines: tables finer than the keys, tables of the keys' dtype, or
// float32 tables with float64 keys (4 ulps of float32).
constexpr double kFinerTables = 2;
constexpr double kOwnTables = 4;
constexpr double kFloat32ForFloat64 = 4 * 0x1p29;
constexpr int kFloat32Bits = 24;

double Ulps(v1::Dtype dtype, long double error, double length) {
  return static_cast<double>(error) / check::UlpAt(dtype, length);
}

// Calls `visit` for the elements of `after`, with the exact result of moving
// `before`.
void Visit(
    const Motion& motion, const check::HeadsView& before,
    const check::HeadsView& after,
    absl::FunctionRef<bool(const check::RotatedElement& element)> visit) {
  check::VisitRotatedHeads(
      motion.rotation, before, after,
      [&](std::int64_t) { return static_cast<long double>(motion.shift); },
      /*token_step=*/1, visit);
}

}  // namespace

Motion MotionOf(const core::ResolvedRope& rope, std::int64_t head_dim,
                std::int64_t shift) {
  check::TokenRotation rotation;
  rotation.before.interleaved =
      rope.spec.pairing == core::Pairing::kInterleaved;
  rotation.before.pairs = rope.spec.nope ? 0 : rope.pairs();
  rotation.before.first = rope.spec.slice == core::RotarySlice::kTrailing
                              ? head_dim - rope.spec.rotary_dim
                              : 0;
  rotation.after = rotation.before;
  rotation.frequencies.assign(rope.inv_freq.begin(),
                              rope.inv_freq.begin() + rotation.before.pairs);
  return {rotation, rope.spec.reverse ? -shift : shift};
}

Bounds BoundsOf(v1::Dtype dtype) {
  const int bits = check::SignificandBits(dtype);
  if (bits > kFloat32Bits) return {kOwnTables, kFloat32ForFloat64, "float32"};
  return {bits < kFloat32Bits ? kFinerTables : kOwnTables, kOwnTables,
          check::DtypeName(dtype)};
}

MotionBound BoundOf(v1::Dtype dtype, double ulps) {
  const bool float64 =
      check::SignificandBits(dtype) > kFloat32Bits && ulps < kFloat32ForFloat64;
  return {ulps, float64 ? 0x1p-53 : 0x1p-24};
}

MotionError Measure(const Motion& motion, const check::HeadsView& before,
                    const check::HeadsView& after, const MotionBound& bound,
                    double p_max, std::int64_t most_tokens) {
  MotionError error;
  error.max_bound = bound.ulps;
  const v1::Dtype dtype = before.tensor.dtype;
  // The allowed error of each pair's angle, in radians.
  std::vector<double> from_angles;
  from_angles.reserve(motion.rotation.frequencies.size());
  for (const long double frequency : motion.rotation.frequencies) {
    const double w = std::abs(static_cast<double>(frequency));
    const double of_shift =
        w > 0 ? (4 + std::abs(std::log(w))) *
                    std::abs(static_cast<double>(motion.shift))
              : 0;
    from_angles.push_back(w * bound.angle_unit * (2 * p_max + of_shift));
  }
  const check::HeadIndex& at = before.index;
  std::vector<bool> bad_tokens(static_cast<std::size_t>(at.batch * at.tokens));
  std::vector<bool> bad_heads(static_cast<std::size_t>(at.heads));
  Visit(motion, before, after, [&](const check::RotatedElement& element) {
    const std::int64_t pair = element.pair;
    const std::int64_t s = element.index / at.token_stride % at.tokens;
    if (s >= most_tokens) return false;
    const double length = static_cast<double>(
        pair < 0 ? std::abs(element.exact) : std::hypot(element.x, element.y));
    const double most =
        pair < 0 ? bound.ulps
                 : bound.ulps + Ulps(dtype, from_angles[pair] * length, length);
    const double ulps =
        Ulps(dtype, std::abs(element.actual - element.exact), length);
    error.max_ulps = std::max(error.max_ulps, ulps);
    error.max_bound = std::max(error.max_bound, most);
    if (ulps <= most) return true;
    const std::int64_t b =
        at.batch > 1 ? element.index / at.batch_stride % at.batch : 0;
    const std::int64_t token = b * at.tokens + s;
    const std::int64_t head = element.index / at.head_stride % at.heads;
    if (error.within) {
      error.first_token = token;
      error.first_head = head;
    }
    error.within = false;
    bad_tokens[token] = bad_heads[head] = true;
    return true;
  });
  error.tokens = std::count(bad_tokens.begin(), bad_tokens.end(), true);
  error.heads = std::count(bad_heads.begin(), bad_heads.end(), true);
  return error;
}

std::vector<double> MeasuredAngles(const check::PairLayout& layout,
                                   const check::HeadsView& before,
                                   const check::HeadsView& after) {
  Motion still;
  still.rotation.before = still.rotation.after = layout;
  still.rotation.frequencies.resize(static_cast<std::size_t>(layout.pairs));
  std::vector<long double> cross(layout.pairs), dot(layout.pairs);
  // Elements of `after` are alternately x and y of a pair; each element adds
  // its products to both sums.
  bool is_x = false;
  Visit(still, before, after, [&](const check::RotatedElement& element) {
    const std::int64_t pair = element.pair;
    if (pair < 0) return true;
    is_x = !is_x;
    cross[pair] += (is_x ? -element.y : element.x) * element.actual;
    dot[pair] += (is_x ? element.x : element.y) * element.actual;
    return true;
  });
  std::vector<double> angles;
  angles.reserve(static_cast<std::size_t>(layout.pairs));
  for (std::int64_t i = 0; i < layout.pairs; ++i) {
    angles.push_back(static_cast<double>(std::atan2(cross[i], dot[i])));
  }
  return angles;
}

double AngleError(const Motion& motion, const std::vector<double>& angles,
                  std::size_t* worst) {
  const long double circle = 2 * std::numbers::pi_v<long double>;
  double most = 0;
  for (std::size_t i = 0; i < angles.size(); ++i) {
    const long double angle =
        static_cast<long double>(motion.shift) * motion.rotation.frequencies[i];
    const auto error = static_cast<double>(
        std::abs(std::remainder(angles[i] - angle, circle)));
    if (!(error > most)) continue;
    most = error;
    if (worst != nullptr) *worst = i;
  }
  return most;
}

bool HasNotFinite(const check::HeadsView& heads) {
  const std::int64_t n = check::ElementCount(heads.tensor.shape);
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(check::ElementAt(heads.tensor, i))) return true;
  }
  return false;
}

}  // namespace posenc::cli
