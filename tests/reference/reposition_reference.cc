#include "tests/reference/reposition_reference.h"

#include <quadmath.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/rope/frequencies.h"

namespace posenc::test {
namespace {

using Quad = __float128;

core::RopeSpec Plain() {
  core::RopeSpec spec;
  spec.pairing = core::Pairing::kHalfSplit;
  return spec;
}

core::RopeSpec Scaled(decltype(core::RopeSpec::scaling) scaling) {
  core::RopeSpec spec = Plain();
  spec.scaling = std::move(scaling);
  return spec;
}

core::RopeSpec Sections(core::AxisAssignment assignment,
                        std::vector<std::int32_t> sections,
                        bool halves = false) {
  core::RopeSpec spec = Plain();
  spec.axes = core::RotaryAxes{assignment, std::move(sections), {}, halves};
  return spec;
}

core::RopeSpec ByHead(std::int32_t heads, std::int32_t axes, double first) {
  core::ExplicitFrequencies frequencies;
  frequencies.heads = heads;
  frequencies.axes = axes;
  for (int i = 0; i < std::max(heads, 1) * axes * 12; ++i) {
    frequencies.values.push_back(first * std::pow(-0.87, i));
  }
  return Scaled(frequencies);
}

// Returns ln of a key's xPos factor, from zeta_i^(-(p - center) / base).
Quad KeyDecay(const core::RopeSpec& spec, int i, int pairs, Quad p) {
  if (!spec.xpos.has_value()) return 0;
  const Quad gamma = spec.xpos->gamma.value_or(0.4);
  const Quad zeta = (Quad(2 * i) / (2 * pairs) + gamma) / (1 + gamma);
  return -logq(zeta) * (p - spec.xpos->center) /
         spec.xpos->scale_base.value_or(512);
}

}  // namespace

core::interpretation::RopeSource Encodings::From() const {
  core::interpretation::RopeSource source;
  source.source = from;
  source.sequence_length = from_length;
  return source;
}

core::interpretation::RopeSource Encodings::To() const {
  core::interpretation::RopeSource source;
  source.source = to;
  source.sequence_length = to_length;
  return source;
}

core::RepositionArgs Encodings::Args(core::Layout layout) const {
  core::RepositionArgs args;
  args.old_rope = core::interpretation::LookupOf(From());
  args.new_rope = core::interpretation::LookupOf(To());
  args.layout = layout;
  args.saturation = core::Saturation::kFinite;
  return args;
}

std::vector<Encodings> AllEncodings() {
  core::RopeSpec leading = Plain(), trailing = Plain();
  leading.rotary_dim = 14;
  trailing.rotary_dim = 10;
  trailing.slice = core::RotarySlice::kTrailing;
  core::RopeSpec base = Plain();
  base.rope_theta = 500000;
  core::RopeSpec reversed = Plain();
  reversed.reverse = true;
  core::RopeSpec float32 = Plain(), float32_base = base;
  float32.angle_precision = core::AnglePrecision::kFloat32;
  float32_base.angle_precision = core::AnglePrecision::kFloat32;
  core::RopeSpec across = Plain(), interleaved = Plain();
  across.output_pairing = core::Pairing::kInterleaved;
  interleaved.pairing = core::Pairing::kInterleaved;
  core::RopeSpec amplified = Plain();
  amplified.attention_factor = 0.75;

  core::YarnScaling yarn;
  yarn.factor = 4;
  yarn.original_max_position_embeddings = 4096;
  core::YarnScaling wider = yarn;
  wider.factor = 16;
  core::LongRopeScaling longrope;
  longrope.short_factor.assign(12, 1.25);
  longrope.long_factor.assign(12, 24.5);
  longrope.original_max_position_embeddings = 4096;
  longrope.short_mscale = 1.05;
  longrope.long_mscale = 1.375;

  core::RopeSpec xpos = Plain(), xpos_base = Plain(), xpos_center = Plain();
  xpos.xpos = core::XPos{};
  xpos_base.xpos = core::XPos{1024, 0.25, 100};
  xpos_center.xpos = core::XPos{512, 0.4, -77.5};

  using core::AxisAssignment;
  const core::RopeSpec mrope = Sections(AxisAssignment::kSectioned, {4, 5, 3});
  const core::RopeSpec imrope =
      Sections(AxisAssignment::kInterleaved, {4, 4, 4});
  const core::RopeSpec halves =
      Sections(AxisAssignment::kPerAxis, {7, 5}, true);
  core::RopeSpec halves_across = halves;
  halves_across.output_pairing = core::Pairing::kInterleaved;
  const core::RopeSpec grid = Sections(AxisAssignment::kPerAxis, {7, 5});

  return {
      {"plain", Plain(), Plain()},
      {"partial", leading, leading},
      {"trailing slice", trailing, trailing},
      {"yarn", Scaled(yarn), Scaled(yarn)},
      {"change of base", Plain(), base},
      {"change of amplitude", Plain(), amplified},
      {"none to yarn", Plain(), Scaled(yarn)},
      {"yarn to a wider one", Scaled(yarn), Scaled(wider)},
      {"linear to llama3", Scaled(core::LinearScaling{4}),
       Scaled(core::Llama3Scaling{8, 1, 4, 8192})},
      {"dynamic ntk grows", Scaled(core::DynamicNtkScaling{2, 4096}),
       Scaled(core::DynamicNtkScaling{2, 4096}), 1, 5000, 9000},
      {"longrope changes sides", Scaled(longrope), Scaled(longrope), 1, 4096,
       4097},
      {"reverse", reversed, reversed},
      {"reverse to forward", reversed, Plain()},
      {"float32 angles", float32, float32},
      {"float32 angles, change of base", float32, float32_base},
      {"float32 to exact", float32, Plain()},
      {"output interleaved", across, across},
      {"output half-split to interleaved", Plain(), interleaved},
      {"output interleaved to half-split", across, base},
      {"mrope", mrope, mrope, 3},
      {"mrope to interleaved", mrope, imrope, 3},
      {"grid", grid, grid, 2},
      {"grid of halves per axis", halves, halves, 2},
      {"halves per axis to interleaved", halves, halves_across, 2},
      {"interleaved to halves per axis", halves_across, halves, 2},
      {"two axes summed", ByHead(0, 2, 0.9), ByHead(0, 2, 0.9), 2},
      {"by head", ByHead(3, 2, 0.9), ByHead(3, 2, 0.8), 2},
      {"one for all to by head", ByHead(0, 1, 0.9), ByHead(3, 1, 0.8)},
      {"grid to summed axes", grid, ByHead(3, 2, 0.9), 2},
      {"xpos", xpos, xpos, 1, 4096, 4096, 1500},
      {"xpos recentred", xpos, xpos_center, 1, 4096, 4096, 1500},
      {"xpos of another base", xpos, xpos_base, 1, 4096, 4096, 1500},
      {"none to xpos", Plain(), xpos, 1, 4096, 4096, 1500},
  };
}

double ElementBound(core::Dtype dtype, double norm) {
  return (dtype == core::Dtype::kFloat64 ? 7 * 0x1p-53 : 3 * 0x1p-24) * norm *
         (1 + 0x1p-20);  // covers squares of u
}

double PairBound(core::Dtype dtype, double norm) {
  return (dtype == core::Dtype::kFloat64 ? (6 * std::sqrt(2.0) + 1) * 0x1p-53
                                         : (2 * std::sqrt(2.0) + 1) * 0x1p-24) *
         norm * (1 + 0x1p-20);
}

std::string FindMoveError(const Encodings& encodings, const Move& move,
                          const Tensor& in, const Tensor& out) {
  const Extents& e = in.extents;
  const core::ResolvedRope from = *core::interpretation::ResolveSource(
      encodings.From(), e.head_dim, core::MissingLength::kError);
  const core::ResolvedRope to = *core::interpretation::ResolveSource(
      encodings.To(), e.head_dim, core::MissingLength::kError);
  const int pairs = to.pairs();
  // Each encoding leaves keys in its output pairing.
  const check::PairLayout stood =
      PairsOf(from.spec, from.spec.output_pairing, e.head_dim);
  const check::PairLayout stands =
      PairsOf(to.spec, to.spec.output_pairing, e.head_dim);
  // The angle at p[axis], which is exact in __float128.
  const auto angle = [&](const core::ResolvedRope& rope, const Quad* p,
                         std::int64_t h, int i) {
    Quad sum = 0;
    float sum32 = 0;
    for (int a = 0; a < rope.frequency_axes; ++a) {
      const std::int64_t row =
          (rope.heads > 0 ? h : 0) * rope.frequency_axes + a;
      const int axis = rope.axis_of_pair.empty() ? a : rope.axis_of_pair[i];
      const double w = rope.inv_freq[row * pairs + i];
      sum += p[axis] * w;
      sum32 += static_cast<float>(p[axis]) * static_cast<float>(w);
    }
    const bool float32 =
        rope.spec.angle_precision == core::AnglePrecision::kFloat32;
    return (rope.spec.reverse ? -1 : 1) * (float32 ? Quad(sum32) : sum);
  };
  std::vector<bool> rotated(e.head_dim);
  for (std::int64_t b = 0; b < e.batch; ++b)
    for (std::int64_t s = 0; s < e.tokens; ++s)
      for (std::int64_t h = 0; h < e.heads; ++h) {
        Quad old_p[16], new_p[16];
        for (int a = 0; a < encodings.axes; ++a) {
          old_p[a] = move.from.at(a, b, s);
          new_p[a] = Quad(move.to.at(a, b, s)) + move.shift;
        }
        for (int i = 0; i < pairs; ++i) {
          const Quad turn = angle(to, new_p, h, i) - angle(from, old_p, h, i);
          const Quad factor = Quad(to.attention_factor) /
                              from.attention_factor *
                              expq(KeyDecay(to.spec, i, pairs, new_p[0]) -
                                   KeyDecay(from.spec, i, pairs, old_p[0]));
          const check::PairChannels source = stood.Channels(i);
          const check::PairChannels target = stands.Channels(i);
          const Quad x = in.At(b, s, h, source.x);
          const Quad y = in.At(b, s, h, source.y);
          const check::RotatedPair<Quad> moved = check::RotatePair<Quad>(
              x, y, factor * cosq(turn), factor * sinq(turn));
          const Quad expected[2] = {moved.x, moved.y};
          const auto norm = static_cast<double>(factor * hypotq(x, y));
          const std::int64_t channel[2] = {target.x, target.y};
          for (int j = 0; j < 2; ++j) {
            rotated[channel[j]] = true;
            double bound = ElementBound(in.dtype, norm);
            if (IsNarrow(in.dtype)) {
              bound +=
                  UnitRoundoff(in.dtype) *
                      (std::abs(static_cast<double>(expected[j])) + bound) +
                  HalfSubnormal(in.dtype);
            }
            const double actual = out.At(b, s, h, channel[j]);
            if (!(fabsq(actual - expected[j]) <= bound)) {
              return absl::StrCat("[b=", b, " s=", s, " h=", h,
                                  " d=", channel[j], "] is ", actual, ", not ",
                                  static_cast<double>(expected[j]), " within ",
                                  bound);
            }
          }
        }
        for (std::int64_t d = 0; d < e.head_dim; ++d) {
          const std::size_t at = in.Offset(b, s, h, d);
          if (!rotated[d] && std::memcmp(&in.bytes[at], &out.bytes[at],
                                         core::DtypeSize(in.dtype)) != 0) {
            return absl::StrCat("[b=", b, " s=", s, " h=", h, " d=", d,
                                "] did not pass through");
          }
        }
      }
  return "";
}

}  // namespace posenc::test
