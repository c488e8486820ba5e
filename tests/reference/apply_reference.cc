#include "tests/reference/apply_reference.h"

#include <cmath>
#include <cstring>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/reference/float_formats.h"

namespace posenc::test {

using core::Dtype;
using core::Layout;

namespace {

std::size_t Size(Dtype dtype) {
  return core::IsFloat8(dtype)      ? 1
         : dtype == Dtype::kFloat64 ? 8
         : dtype == Dtype::kFloat32 ? 4
                                    : 2;
}

const reference::Format8& Format8Of(Dtype dtype) {
  return dtype == Dtype::kFloat8E4m3fn ? reference::kE4m3 : reference::kE5m2;
}

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Returns FP8's largest finite number if x is larger and saturates, else x.
long double Saturated(Dtype dtype, core::Saturation saturation, long double x) {
  if (!core::IsFloat8(dtype) || saturation != core::Saturation::kFinite ||
      std::isnan(x)) {
    return x;
  }
  const long double largest =
      Magnitude8(Format8Of(dtype), Format8Of(dtype).largest);
  return std::fmax(-largest, std::fmin(largest, x));
}

// A pair's axis and frequency, for a spec with one row of frequencies.
struct Pair {
  int axis;
  long double frequency;
};

Pair BasePair(const core::RopeSpec& spec, int rotary_dim, int i) {
  const int pairs = rotary_dim / 2;
  const long double theta = spec.rope_theta.value_or(10000);
  // The encoding's frequency is a float64 number (core/rope/frequencies.h).
  const auto power = [](long double base, int index, int n) -> long double {
    return static_cast<double>(
        std::pow(base, -static_cast<long double>(index) / n));
  };
  if (!spec.axes.has_value()) return {0, power(theta, i, pairs)};
  const core::RotaryAxes& axes = *spec.axes;
  const int count = static_cast<int>(axes.sections.size());
  int axis = 0, first = 0;
  while (i >= first + axes.sections[axis]) first += axes.sections[axis++];
  switch (axes.assignment) {
    case core::AxisAssignment::kPerAxis:
      return {axis,
              power(axes.axis_thetas.empty() ? theta : axes.axis_thetas[axis],
                    i - first, axes.sections[axis])};
    case core::AxisAssignment::kInterleaved: {
      const int a = i % count;
      return {a > 0 && i < count * axes.sections[a] ? a : 0,
              power(theta, i, pairs)};
    }
    case core::AxisAssignment::kAlternatingTail: {
      const int spatial = pairs - axes.sections[0];
      return {i < spatial ? 1 + i % 2 : 0, power(theta, i, pairs)};
    }
    default:
      return {axis, power(theta, i, pairs)};
  }
}

// Returns the contract's name of a layout, for check::HeadIndex.
const char* Order(Layout layout) {
  switch (layout) {
    case Layout::kBshd:
      return "bshd";
    case Layout::kBhsd:
      return "bhsd";
    case Layout::kSbhd:
      return "sbhd";
    default:
      return "thd";
  }
}

}  // namespace

Tensor::Tensor(Dtype dtype_in, Layout layout_in, const Extents& e)
    : dtype(dtype_in), layout(layout_in), extents(e) {
  for (const char* c = Order(layout); *c != '\0'; ++c) {
    shape.push_back(*c == 'b'   ? e.batch
                    : *c == 'h' ? e.heads
                    : *c == 'd' ? e.head_dim
                                : e.tokens);
  }
  index = check::HeadIndex::Of(Order(layout), {shape.begin(), shape.end()});
  bytes.resize(e.batch * e.tokens * e.heads * e.head_dim * Size(dtype));
}

std::size_t Tensor::Offset(std::int64_t b, std::int64_t s, std::int64_t h,
                           std::int64_t d) const {
  return (index.Offset(b, s, h) + d) * Size(dtype);
}

double Tensor::At(std::int64_t b, std::int64_t s, std::int64_t h,
                  std::int64_t d) const {
  const std::byte* const from = bytes.data() + Offset(b, s, h, d);
  switch (dtype) {
    case Dtype::kFloat16:
      return Decode16(reference::kFloat16, Load<std::uint16_t>(from));
    case Dtype::kBfloat16: {
      const std::uint32_t bits = std::uint32_t{Load<std::uint16_t>(from)} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
    case Dtype::kFloat64:
      return Load<double>(from);
    case Dtype::kFloat8E4m3fn:
    case Dtype::kFloat8E5m2:
      return Decode8(Format8Of(dtype), Load<std::uint8_t>(from));
    default:
      return Load<float>(from);
  }
}

void Tensor::Set(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d,
                 double value) {
  std::byte* const to = bytes.data() + Offset(b, s, h, d);
  const auto single = static_cast<float>(value);
  const std::uint16_t half = dtype == Dtype::kFloat16
                                 ? Encode16(reference::kFloat16, value)
                                 : std::uint16_t{0};
  std::uint32_t bits;
  std::memcpy(&bits, &single, sizeof(bits));
  const auto brain = static_cast<std::uint16_t>(bits >> 16);
  const std::uint8_t eight =
      core::IsFloat8(dtype) ? Encode8(Format8Of(dtype), value, false) : 0;
  const void* const from =
      dtype == Dtype::kFloat16    ? static_cast<const void*>(&half)
      : dtype == Dtype::kBfloat16 ? &brain
      : dtype == Dtype::kFloat64  ? static_cast<const void*>(&value)
      : core::IsFloat8(dtype)     ? static_cast<const void*>(&eight)
                                  : &single;
  std::memcpy(to, from, Size(dtype));
}

void Tensor::Fill(std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(-4, 4);
  for (std::int64_t b = 0; b < extents.batch; ++b)
    for (std::int64_t s = 0; s < extents.tokens; ++s)
      for (std::int64_t h = 0; h < extents.heads; ++h)
        for (std::int64_t d = 0; d < extents.head_dim; ++d)
          Set(b, s, h, d, uniform(random));
}

core::Positions Grid::Ids(Layout layout) const {
  core::Shape shape = {tokens};
  if (layout != Layout::kThd) shape.insert(shape.begin(), batch);
  if (axes > 1) shape.insert(shape.begin(), axes);
  return core::PositionIds{{Dtype::kFloat64, shape, values.data()}};
}

Grid RandomGrid(std::int64_t axes, std::int64_t batch, std::int64_t tokens,
                std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(-3000, 60000);
  Grid grid{axes, batch, tokens, {}};
  for (std::int64_t i = 0; i < axes * batch * tokens; ++i) {
    const double p = uniform(random);
    grid.values.push_back(i % 3 == 0 ? p : std::floor(p));
  }
  return grid;
}

double UnitRoundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return 0x1p-11;
    case Dtype::kBfloat16:
      return 0x1p-8;
    case Dtype::kFloat64:
      return 0x1p-53;
    case Dtype::kFloat8E4m3fn:
      return 0x1p-4;
    case Dtype::kFloat8E5m2:
      return 0x1p-3;
    default:
      return 0x1p-24;
  }
}

double HalfSubnormal(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return 0x1p-25;
    case Dtype::kFloat8E4m3fn:
      return 0x1p-10;
    case Dtype::kFloat8E5m2:
      return 0x1p-17;
    default:
      return 0x1p-134;
  }
}

bool IsNarrow(Dtype dtype) {
  return dtype != Dtype::kFloat32 && dtype != Dtype::kFloat64;
}

double ArithmeticBound(Dtype dtype, double norm, double angle) {
  if (dtype != Dtype::kFloat64) return 4 * 0x1p-24 * norm;
  return (0x1p-51 + 2 * 0x1p-53 + std::abs(angle) * 0x1p-52) * norm;
}

check::PairLayout PairsOf(const core::RopeSpec& spec, core::Pairing pairing,
                          std::int64_t head_dim) {
  const std::int64_t width = spec.nope              ? 0
                             : spec.rotary_dim != 0 ? spec.rotary_dim
                                                    : head_dim;
  check::PairLayout layout;
  layout.interleaved = pairing == core::Pairing::kInterleaved;
  layout.pairs = width / 2;
  if (spec.slice == core::RotarySlice::kTrailing) {
    layout.first = head_dim - width;
  }
  if (spec.axes.has_value() && spec.axes->halves_per_axis) {
    layout.pairs_by_axis.assign(spec.axes->sections.begin(),
                                spec.axes->sections.end());
  }
  return layout;
}

std::string FindError(const core::RopeSpec& spec,
                      const core::ApplyRopeArgs& args, const Grid& positions,
                      core::TensorRole role, const Tensor& in,
                      const Tensor& out) {
  const auto* explicit_frequencies =
      std::get_if<core::ExplicitFrequencies>(&spec.scaling);
  const Extents& e = in.extents;
  const bool forward = args.direction == core::Direction::kForward;
  const bool divide = args.direction == core::Direction::kInverse;
  const core::Pairing written =
      spec.output_pairing == core::Pairing::kUnspecified ? spec.pairing
                                                         : spec.output_pairing;
  const check::PairLayout from =
      PairsOf(spec, forward ? spec.pairing : written, e.head_dim);
  const check::PairLayout to =
      PairsOf(spec, forward ? written : spec.pairing, e.head_dim);
  const int pairs = static_cast<int>(from.pairs);
  const int width = 2 * pairs;
  const int start = static_cast<int>(from.first);
  const bool is_query = role == core::TensorRole::kQuery;

  for (std::int64_t b = 0; b < e.batch; ++b)
    for (std::int64_t s = 0; s < e.tokens; ++s) {
      long double scale = 1;
      if (is_query && args.query_scale.has_value()) {
        const core::QueryScale& q = *args.query_scale;
        const long double p = positions.at(0, b, s);
        scale +=
            q.beta * std::log(1 + std::floor((p + q.offset) / q.floor_scale));
      }
      if (divide) scale = 1 / scale;
      for (std::int64_t h = 0; h < e.heads; ++h) {
        const auto fault = [&](std::int64_t d, long double expected,
                               double bound) {
          return absl::StrCat("[b=", b, " s=", s, " h=", h, " d=", d, "] is ",
                              out.At(b, s, h, d), ", not ",
                              static_cast<double>(expected), " within ", bound);
        };
        for (int i = 0; i < pairs; ++i) {
          long double angle = 0;
          if (explicit_frequencies != nullptr && !spec.axes.has_value()) {
            const int axes = std::max(explicit_frequencies->axes, 1);
            const std::int64_t head = explicit_frequencies->heads > 0 ? h : 0;
            for (int a = 0; a < axes; ++a) {
              angle += positions.at(a, b, s) *
                       static_cast<long double>(
                           explicit_frequencies
                               ->values[(head * axes + a) * pairs + i]);
            }
          } else {
            const Pair pair = BasePair(spec, width, i);
            angle = positions.at(pair.axis, b, s) * pair.frequency;
          }
          long double factor = spec.attention_factor.value_or(1);
          if (spec.xpos.has_value()) {
            const long double gamma = spec.xpos->gamma.value_or(0.4);
            const long double zeta = (2.0L * i / width + gamma) / (1 + gamma);
            const long double power =
                std::pow(zeta, (positions.at(0, b, s) - spec.xpos->center) /
                                   spec.xpos->scale_base.value_or(512));
            factor *= is_query ? power : 1 / power;
          }
          if (divide) factor = 1 / factor;
          factor *= scale;
          const long double turn = spec.reverse == forward ? -angle : angle;
          const check::PairChannels source = from.Channels(i);
          const check::PairChannels target = to.Channels(i);
          const long double x = in.At(b, s, h, source.x);
          const long double y = in.At(b, s, h, source.y);
          const check::RotatedPair<long double> rotated = check::RotatePair(
              x, y, factor * std::cos(turn), factor * std::sin(turn));
          const long double expected[2] = {
              Saturated(in.dtype, args.saturation, rotated.x),
              Saturated(in.dtype, args.saturation, rotated.y)};
          const std::int64_t channel[2] = {target.x, target.y};
          for (int j = 0; j < 2; ++j) {
            const double actual = out.At(b, s, h, channel[j]);
            double bound =
                ArithmeticBound(in.dtype,
                                static_cast<double>(std::abs(factor)) *
                                    static_cast<double>(std::hypot(x, y)),
                                static_cast<double>(angle));
            if (IsNarrow(in.dtype)) {
              bound +=
                  UnitRoundoff(in.dtype) *
                      (static_cast<double>(std::abs(expected[j])) + bound) +
                  HalfSubnormal(in.dtype);
            }
            if (std::isnan(expected[j]) ? !std::isnan(actual)
                : std::isinf(expected[j])
                    ? actual != static_cast<double>(expected[j])
                    : !(std::abs(actual - expected[j]) <= bound)) {
              return fault(channel[j], expected[j], bound);
            }
          }
        }
        for (int d = 0; d < e.head_dim; ++d) {
          if (d >= start && d < start + width) continue;
          if (scale == 1) {
            const std::size_t at = in.Offset(b, s, h, d);
            if (std::memcmp(in.bytes.data() + at, out.bytes.data() + at,
                            Size(in.dtype)) != 0) {
              return fault(d, in.At(b, s, h, d), 0);
            }
            continue;
          }
          // The factor and the product are rounded, and the result once more.
          const long double expected =
              Saturated(in.dtype, args.saturation, in.At(b, s, h, d) * scale);
          const double magnitude = static_cast<double>(std::abs(expected));
          const double unit =
              in.dtype == Dtype::kFloat64 ? 4 * 0x1p-53 : 2 * 0x1p-24;
          const double bound =
              magnitude * (unit * 1.01 + UnitRoundoff(in.dtype) * 1.01) +
              HalfSubnormal(in.dtype);
          if (!(std::abs(out.At(b, s, h, d) - expected) <= bound)) {
            return fault(d, expected, bound);
          }
        }
      }
    }
  return "";
}

}  // namespace posenc::test
