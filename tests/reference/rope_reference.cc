#include "tests/reference/rope_reference.h"

#include <quadmath.h>

#include <cmath>

namespace posenc::reference {
namespace {

using core::AxisAssignment;

Quad Clamp01(Quad x) { return x < 0 ? Quad{0} : x > 1 ? Quad{1} : x; }

// Pair i of geometric frequencies over d channels; `global` is its index among
// all pairs.
Quad Frequency(const core::RopeSpec& spec, Quad theta, int d, int i, int global,
               std::int64_t length) {
  const auto power = [&](Quad base) {
    return powq(base, -Quad{2} * i / Quad(d));
  };
  const Quad ntk_exponent = d > 2 ? Quad(d) / Quad(d - 2) : Quad{0};
  if (const auto* s = std::get_if<core::LinearScaling>(&spec.scaling)) {
    return power(theta) / s->factor;
  }
  if (const auto* s = std::get_if<core::NtkScaling>(&spec.scaling)) {
    return power(theta * powq(s->factor, ntk_exponent));
  }
  if (const auto* s = std::get_if<core::DynamicNtkScaling>(&spec.scaling)) {
    if (length <= s->max_position_embeddings) return power(theta);
    const Quad grown = Quad(s->factor) * length / s->max_position_embeddings -
                       (Quad(s->factor) - 1);
    return power(theta * powq(grown, ntk_exponent));
  }
  if (const auto* s = std::get_if<core::YarnScaling>(&spec.scaling)) {
    const auto turns_at = [&](Quad turns) {
      return d *
             logq(s->original_max_position_embeddings / (2 * M_PIq * turns)) /
             (2 * logq(theta));
    };
    Quad low = turns_at(s->beta_fast.value_or(32));
    Quad high = turns_at(s->beta_slow.value_or(1));
    if (s->truncate.value_or(true)) {
      low = floorq(low);
      high = ceilq(high);
    }
    low = fmaxq(low, 0);
    high = fminq(high, d - 1);
    if (low == high) high += Quad{1} / 1000;
    const Quad r = Clamp01((i - low) / (high - low));
    return r * power(theta) / s->factor + (1 - r) * power(theta);
  }
  if (const auto* s = std::get_if<core::LongRopeScaling>(&spec.scaling)) {
    return power(theta) / (length > s->original_max_position_embeddings
                               ? s->long_factor[global]
                               : s->short_factor[global]);
  }
  if (const auto* s = std::get_if<core::Llama3Scaling>(&spec.scaling)) {
    // Meta's formula uses wavelengths.
    const Quad w = power(theta);
    const Quad wavelength = 2 * M_PIq / w;
    const Quad original = s->original_max_position_embeddings;
    if (wavelength > original / s->low_freq_factor) return w / s->factor;
    if (wavelength < original / s->high_freq_factor) return w;
    const Quad t = (original / wavelength - s->low_freq_factor) /
                   (Quad(s->high_freq_factor) - s->low_freq_factor);
    return (1 - t) * w / s->factor + t * w;
  }
  if (const auto* s = std::get_if<core::ProportionalScaling>(&spec.scaling)) {
    return i < s->rotating_pairs ? power(theta) / s->factor.value_or(1)
                                 : Quad{0};
  }
  return power(theta);
}

Quad G(Quad s, Quad m) { return s <= 1 ? Quad{1} : m * logq(s) / 10 + 1; }

}  // namespace

std::vector<Quad> InvFreq(const core::RopeSpec& spec, std::int64_t length) {
  std::vector<Quad> result;
  if (const auto* s = std::get_if<core::ExplicitFrequencies>(&spec.scaling)) {
    result.assign(s->values.begin(), s->values.end());
    return result;
  }
  if (spec.axes && spec.axes->assignment == AxisAssignment::kPerAxis) {
    for (std::size_t a = 0; a < spec.axes->sections.size(); ++a) {
      const int n = spec.axes->sections[a];
      const Quad theta = spec.axes->axis_thetas.empty()
                             ? *spec.rope_theta
                             : spec.axes->axis_thetas[a];
      const int first = static_cast<int>(result.size());
      for (int i = 0; i < n; ++i) {
        result.push_back(Frequency(spec, theta, 2 * n, i, first + i, length));
      }
    }
    return result;
  }
  for (int i = 0; i < spec.rotary_dim / 2; ++i) {
    result.push_back(
        Frequency(spec, *spec.rope_theta, spec.rotary_dim, i, i, length));
  }
  return result;
}

Quad Amplitude(const core::RopeSpec& spec, std::int64_t length) {
  if (const auto* s = std::get_if<core::YarnScaling>(&spec.scaling)) {
    if (s->attention_factor) return *s->attention_factor;
    if (s->mscale.value_or(0) != 0 && s->mscale_all_dim.value_or(0) != 0) {
      return G(s->factor, *s->mscale) / G(s->factor, *s->mscale_all_dim);
    }
    return G(s->factor, 1);
  }
  if (const auto* s = std::get_if<core::LongRopeScaling>(&spec.scaling)) {
    const bool is_long = length > s->original_max_position_embeddings;
    if (s->attention_factor) return *s->attention_factor;
    if (is_long && s->long_mscale) return *s->long_mscale;
    if (!is_long && s->short_mscale) return *s->short_mscale;
    if (*s->factor <= 1) return 1;
    return sqrtq(1 +
                 logq(*s->factor) / logq(s->original_max_position_embeddings));
  }
  return 1;
}

Quad YarnPairWithTurns(std::int32_t rotary_dim, double theta,
                       std::int64_t original, double turns) {
  return rotary_dim * logq(original / (2 * M_PIq * turns)) / (2 * logq(theta));
}

Quad Cos(double position, double frequency) {
  return cosq(Quad(position) * frequency);
}

Quad Sin(double position, double frequency) {
  return sinq(Quad(position) * frequency);
}

double UlpError(double actual, Quad exact) {
  if (exact == 0) return actual == 0 ? 0 : HUGE_VAL;
  int exponent;
  frexpq(exact, &exponent);
  return static_cast<double>(fabsq(Quad(actual) - exact) /
                             ldexpq(1, exponent - 53));
}

}  // namespace posenc::reference
