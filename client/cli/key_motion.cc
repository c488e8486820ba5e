#include "client/cli/key_motion.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "client/check/element.h"

namespace posenc::cli {
namespace {

struct Pair {
  double x, y;
};

Pair PairAt(const check::HeadsView& heads, std::int64_t offset,
            const check::PairChannels& channels) {
  return {check::ElementAt(heads.tensor, offset + channels.x),
          check::ElementAt(heads.tensor, offset + channels.y)};
}

// Calls visit(token, head, offset of the head's first channel) for every head
// of the first `most_tokens` tokens of each sequence.
template <typename Visit>
void ForHeads(const check::HeadIndex& index, std::int64_t most_tokens,
              Visit visit) {
  for (std::int64_t b = 0; b < index.batch; ++b) {
    for (std::int64_t s = 0; s < std::min(index.tokens, most_tokens); ++s) {
      for (std::int64_t h = 0; h < index.heads; ++h) {
        visit(b * index.tokens + s, h, index.Offset(b, s, h));
      }
    }
  }
}

double Ulps(v1::Dtype dtype, long double error, double length) {
  return static_cast<double>(error) / check::UlpAt(dtype, length);
}

}  // namespace

Motion MotionOf(const core::ResolvedRope& rope, std::int64_t head_dim,
                std::int64_t shift) {
  Motion motion;
  motion.frequencies = rope.inv_freq;
  motion.layout.interleaved = rope.spec.pairing == core::Pairing::kInterleaved;
  motion.layout.pairs = rope.pairs();
  motion.layout.first = rope.spec.slice == core::RotarySlice::kTrailing
                            ? head_dim - rope.spec.rotary_dim
                            : 0;
  motion.shift = rope.spec.reverse ? -shift : shift;
  if (rope.spec.nope) motion.layout.pairs = 0;
  return motion;
}

MotionError Measure(const Motion& motion, const check::HeadsView& before,
                    const check::HeadsView& after, const MotionBound& bound,
                    double p_max, std::int64_t most_tokens) {
  MotionError error;
  error.max_bound = bound.ulps;
  const v1::Dtype dtype = before.tensor.dtype;
  const std::int64_t pairs = motion.layout.pairs;
  std::vector<long double> cosines, sines;
  std::vector<bool> rotates(static_cast<std::size_t>(before.index.head_dim));
  for (std::int64_t i = 0; i < pairs; ++i) {
    const long double angle =
        static_cast<long double>(motion.shift) * motion.frequencies[i];
    cosines.push_back(motion.amplitude * std::cos(angle));
    sines.push_back(motion.amplitude * std::sin(angle));
    const check::PairChannels channels = motion.layout.Channels(i);
    rotates[channels.x] = rotates[channels.y] = true;
  }
  // Radians that angles may be off by, for each pair.
  std::vector<double> from_angles;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double w = std::abs(motion.frequencies[i]);
    const double of_shift =
        w > 0 ? (4 + std::abs(std::log(w))) *
                    std::abs(static_cast<double>(motion.shift))
              : 0;
    from_angles.push_back(w * bound.angle_unit * (2 * p_max + of_shift));
  }
  std::vector<bool> bad_tokens(
      static_cast<std::size_t>(before.index.batch * before.index.tokens));
  std::vector<bool> bad_heads(static_cast<std::size_t>(before.index.heads));
  std::int64_t token = 0, head = 0;
  const auto judge = [&](long double off, double length, double most) {
    const double ulps = Ulps(dtype, off, length);
    error.max_ulps = std::max(error.max_ulps, ulps);
    error.max_bound = std::max(error.max_bound, most);
    if (ulps <= most) return;
    if (error.within) {
      error.first_token = token;
      error.first_head = head;
    }
    error.within = false;
    bad_tokens[token] = bad_heads[head] = true;
  };
  ForHeads(before.index, most_tokens,
           [&](std::int64_t t, std::int64_t h, std::int64_t offset) {
             token = t;
             head = h;
             for (std::int64_t i = 0; i < pairs; ++i) {
               const check::PairChannels channels = motion.layout.Channels(i);
               const Pair a = PairAt(before, offset, channels);
               const Pair b = PairAt(after, offset, channels);
               const long double x = a.x * cosines[i] - a.y * sines[i];
               const long double y = a.x * sines[i] + a.y * cosines[i];
               const double length = std::hypot(a.x, a.y);
               judge(std::max(std::abs(b.x - x), std::abs(b.y - y)), length,
                     bound.ulps + Ulps(dtype, from_angles[i] * length, length));
             }
             for (std::int64_t d = 0; d < before.index.head_dim; ++d) {
               if (rotates[d]) continue;
               const double a = check::ElementAt(before.tensor, offset + d);
               const double b = check::ElementAt(after.tensor, offset + d);
               judge(std::abs(a - b), std::abs(a), bound.ulps);
             }
           });
  error.tokens = std::count(bad_tokens.begin(), bad_tokens.end(), true);
  error.heads = std::count(bad_heads.begin(), bad_heads.end(), true);
  return error;
}

std::vector<double> MeasuredAngles(const check::PairLayout& layout,
                                   const check::HeadsView& before,
                                   const check::HeadsView& after) {
  std::vector<long double> cross(layout.pairs), dot(layout.pairs);
  ForHeads(before.index, before.index.tokens,
           [&](std::int64_t, std::int64_t, std::int64_t offset) {
             for (std::int64_t i = 0; i < layout.pairs; ++i) {
               const Pair a = PairAt(before, offset, layout.Channels(i));
               const Pair b = PairAt(after, offset, layout.Channels(i));
               cross[i] += static_cast<long double>(a.x) * b.y -
                           static_cast<long double>(a.y) * b.x;
               dot[i] += static_cast<long double>(a.x) * b.x +
                         static_cast<long double>(a.y) * b.y;
             }
           });
  std::vector<double> angles;
  angles.reserve(static_cast<std::size_t>(layout.pairs));
  for (std::int64_t i = 0; i < layout.pairs; ++i) {
    angles.push_back(static_cast<double>(std::atan2(cross[i], dot[i])));
  }
  return angles;
}

double AngleError(const Motion& motion, const std::vector<double>& angles) {
  const long double circle = 2 * std::numbers::pi_v<long double>;
  double most = 0;
  for (std::size_t i = 0; i < angles.size(); ++i) {
    const long double angle =
        static_cast<long double>(motion.shift) * motion.frequencies[i];
    most = std::max(most, static_cast<double>(std::abs(
                              std::remainder(angles[i] - angle, circle))));
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
