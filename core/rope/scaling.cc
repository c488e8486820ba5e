#include "core/rope/scaling.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/angle/quarter_turns.h"
#include "core/angle/wide.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace posenc::core {
namespace {

// Checks that a required field is > 0. A proto field without presence is 0 if
// it is unset, so 0 is reported as unset.
template <typename Number>
absl::Status CheckRequired(absl::string_view field, Number value) {
  if (value == 0) {
    return FieldRequired(field, "is unset or 0; must be > 0");
  }
  if constexpr (std::is_floating_point_v<Number>) {
    return CheckPositive(field, value);
  } else {
    return value > 0 ? absl::OkStatus() : MustBe(field, value, "> 0");
  }
}

absl::Status CheckOptional(absl::string_view field,
                           const std::optional<double>& value) {
  return value.has_value() ? CheckPositive(field, *value) : absl::OkStatus();
}

absl::Status CheckFinite(absl::string_view field,
                         const std::optional<double>& value) {
  if (value.has_value() && !std::isfinite(*value)) {
    return MustBe(field, *value, "finite");
  }
  return absl::OkStatus();
}

void WarnBelowOne(absl::string_view field, double factor, ResolvedRope* rope) {
  if (factor < 1) {
    rope->warnings.push_back(absl::StrCat(
        field, " is ", NumberText(factor),
        ": below 1 it spreads positions instead of compressing them"));
  }
}

// Returns all errors of several checks as one status.
absl::Status All(std::initializer_list<absl::Status> checks) {
  Faults faults;
  for (const absl::Status& check : checks) faults.Note(check);
  return faults.status();
}

absl::Status Complete(std::monostate&, ResolvedRope*) {
  return absl::OkStatus();
}

absl::Status Complete(LinearScaling& linear, ResolvedRope* rope) {
  WarnBelowOne("linear.factor", linear.factor, rope);
  return CheckRequired("linear.factor", linear.factor);
}

absl::Status Complete(NtkScaling& ntk, ResolvedRope* rope) {
  WarnBelowOne("ntk.factor", ntk.factor, rope);
  return CheckRequired("ntk.factor", ntk.factor);
}

absl::Status Complete(DynamicNtkScaling& dynamic, ResolvedRope* rope) {
  WarnBelowOne("dynamic_ntk.factor", dynamic.factor, rope);
  return All({CheckRequired("dynamic_ntk.factor", dynamic.factor),
              CheckRequired("dynamic_ntk.max_position_embeddings",
                            dynamic.max_position_embeddings)});
}

absl::Status Complete(YarnScaling& yarn, ResolvedRope* rope) {
  RETURN_IF_ERROR(
      All({CheckRequired("yarn.factor", yarn.factor),
           CheckRequired("yarn.original_max_position_embeddings",
                         yarn.original_max_position_embeddings),
           CheckOptional("yarn.beta_fast", yarn.beta_fast),
           CheckFinite("yarn.beta_slow", yarn.beta_slow),
           CheckOptional("yarn.attention_factor", yarn.attention_factor),
           CheckFinite("yarn.mscale", yarn.mscale),
           CheckFinite("yarn.mscale_all_dim", yarn.mscale_all_dim)}));
  WarnBelowOne("yarn.factor", yarn.factor, rope);
  Default("yarn.beta_fast", 32, "unset; the paper's default", &yarn.beta_fast,
          rope);
  Default("yarn.beta_slow", 1, "unset; the paper's default", &yarn.beta_slow,
          rope);
  if (!yarn.truncate.has_value()) {
    yarn.truncate = true;
    Assume("yarn.truncate", "true", "unset; as transformers has it", rope);
  }
  if (*yarn.beta_slow < 0) {
    return MustBe("yarn.beta_slow", *yarn.beta_slow, ">= 0");
  }
  if (*yarn.beta_fast < *yarn.beta_slow) {
    return FieldInvalid(
        "yarn.beta_fast",
        absl::StrCat("is ", NumberText(*yarn.beta_fast), ", and beta_slow is ",
                     NumberText(*yarn.beta_slow),
                     "; beta_fast must not be less"));
  }
  return absl::OkStatus();
}

absl::Status CheckFactors(absl::string_view field,
                          const std::vector<double>& factors,
                          std::int32_t pairs) {
  if (factors.empty()) {
    return FieldRequired(field, absl::StrCat("is empty; must have rotary_dim "
                                             "/ 2 = ",
                                             pairs, " values"));
  }
  if (factors.size() != static_cast<std::size_t>(pairs)) {
    return FieldInvalid(field, absl::StrCat("has ", factors.size(),
                                            " values; must have rotary_dim / "
                                            "2 = ",
                                            pairs));
  }
  for (std::size_t i = 0; i < factors.size(); ++i) {
    RETURN_IF_ERROR(
        CheckPositive(absl::StrCat(field, "[", i, "]"), factors[i]));
  }
  return absl::OkStatus();
}

absl::Status Complete(LongRopeScaling& longrope, ResolvedRope* rope) {
  RETURN_IF_ERROR(All(
      {CheckFactors("longrope.short_factor", longrope.short_factor,
                    rope->pairs()),
       CheckFactors("longrope.long_factor", longrope.long_factor,
                    rope->pairs()),
       CheckRequired("longrope.original_max_position_embeddings",
                     longrope.original_max_position_embeddings),
       CheckOptional("longrope.factor", longrope.factor),
       CheckOptional("longrope.attention_factor", longrope.attention_factor),
       CheckOptional("longrope.short_mscale", longrope.short_mscale),
       CheckOptional("longrope.long_mscale", longrope.long_mscale)}));
  if (longrope.original_max_position_embeddings == 1) {
    return FieldInvalid("longrope.original_max_position_embeddings",
                        "is 1; must be > 1, because its log is a divisor");
  }
  if (longrope.factor.has_value()) {
    WarnBelowOne("longrope.factor", *longrope.factor, rope);
  }
  return absl::OkStatus();
}

absl::Status Complete(Llama3Scaling& llama3, ResolvedRope* rope) {
  RETURN_IF_ERROR(
      All({CheckRequired("llama3.factor", llama3.factor),
           CheckRequired("llama3.low_freq_factor", llama3.low_freq_factor),
           CheckRequired("llama3.high_freq_factor", llama3.high_freq_factor),
           CheckRequired("llama3.original_max_position_embeddings",
                         llama3.original_max_position_embeddings)}));
  WarnBelowOne("llama3.factor", llama3.factor, rope);
  if (llama3.high_freq_factor <= llama3.low_freq_factor) {
    return FieldInvalid("llama3.high_freq_factor",
                        absl::StrCat("is ", NumberText(llama3.high_freq_factor),
                                     ", and low_freq_factor is ",
                                     NumberText(llama3.low_freq_factor),
                                     "; high_freq_factor must be greater"));
  }
  return absl::OkStatus();
}

absl::Status Complete(ProportionalScaling& proportional, ResolvedRope* rope) {
  RETURN_IF_ERROR(CheckOptional("proportional.factor", proportional.factor));
  Default("proportional.factor", 1, "unset; frequencies as they are",
          &proportional.factor, rope);
  WarnBelowOne("proportional.factor", *proportional.factor, rope);
  const std::int32_t pairs = proportional.rotating_pairs;
  const std::string rule =
      absl::StrCat("must be 1..rotary_dim / 2 = ", rope->pairs());
  if (pairs == 0) {
    return FieldRequired("proportional.rotating_pairs",
                         absl::StrCat("is unset or 0; ", rule));
  }
  if (pairs < 0 || pairs > rope->pairs()) {
    return FieldInvalid("proportional.rotating_pairs",
                        absl::StrCat("is ", pairs, "; ", rule));
  }
  return absl::OkStatus();
}

absl::Status Complete(ExplicitFrequencies&, ResolvedRope*) {
  return absl::OkStatus();
}

absl::Status TooFewPairs(absl::string_view field) {
  return FieldInvalid(field,
                      "on 2 channels divides by zero (d / (d - 2)); rotate at "
                      "least 4 channels, or use linear");
}

// YaRN ("NTK by parts", arXiv:2309.00071) treats pairs by the number of full
// rotations that they make within the original positions:
//
//   rotations > beta_fast   kept: they distinguish near positions
//   rotations < beta_slow   divided by the factor: they encode far positions,
//                           and must not get angles outside training
//   between                 blended along a ramp, linear in the pair's number
//
// Pair i makes L w_i / (2 pi) rotations, w_i = theta^(-2i/d). Solved for i, the
// pair with a given number of rotations is
//
//   i = d ln(L / (2 pi rotations)) / (2 ln theta)
//
//   ramp 1 |            ________
//          |           /
//        0 |__________/
//            low = i(beta_fast)   high = i(beta_slow)
struct YarnRamp {
  Wide low = 0, high = 0;

  YarnRamp(const YarnScaling& yarn, const Wide& ln_theta, std::int32_t n) {
    const double d = 2.0 * n;
    const auto pair_with_rotations = [&](double rotations) {
      const Wide original =
          static_cast<double>(yarn.original_max_position_embeddings);
      return d * Log(original / (2 * kWidePi * rotations)) / (2 * ln_theta);
    };
    low = pair_with_rotations(yarn.beta_fast.value_or(32));
    high = pair_with_rotations(yarn.beta_slow.value_or(1));
    if (yarn.truncate.value_or(true)) {
      low = Floor(low);
      high = -Floor(-high);
    }
    low = std::max(low, Wide(0));
    // The last pair is d / 2 - 1, but the authors' code and all later code have
    // d - 1, and models were trained with d - 1.
    high = std::min(high, Wide(d - 1));
    // The authors' code avoids a division by zero in this way.
    if (low == high) high = high + Wide(1) / 1000;
  }

  Wide operator()(std::int32_t i) const {
    return std::clamp((i - low) / (high - low), Wide(0), Wide(1));
  }
};

// Name of the field for errors about invalid frequencies.
absl::string_view ScalingName(const RopeSpec& spec) {
  static constexpr absl::string_view kNames[] = {
      "rope_theta", "linear", "ntk",          "dynamic_ntk",         "yarn",
      "longrope",   "llama3", "proportional", "explicit_frequencies"};
  static_assert(std::size(kNames) ==
                std::variant_size_v<decltype(RopeSpec::scaling)>);
  return kNames[spec.scaling.index()];
}

}  // namespace

absl::Status CheckPositive(absl::string_view field, double value) {
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  return MustBe(field, value, "finite and > 0");
}

void Assume(absl::string_view field, absl::string_view value,
            absl::string_view reason, ResolvedRope* rope) {
  rope->assumptions.push_back(
      {std::string(field), std::string(value), std::string(reason)});
}

void Default(absl::string_view field, double value, absl::string_view reason,
             std::optional<double>* target, ResolvedRope* rope) {
  if (target->has_value()) return;
  *target = value;
  Assume(field, NumberText(value), reason, rope);
}

Wide YarnMscale(double factor, double mscale) {
  return factor <= 1 ? 1 : mscale * Log(factor) / 10 + 1;
}

absl::Status CompleteScaling(ResolvedRope* rope) {
  return std::visit([&](auto& scaling) { return Complete(scaling, rope); },
                    rope->spec.scaling);
}

absl::StatusOr<std::int64_t> ScalingLength(
    std::optional<std::int64_t> sequence_length, MissingLength missing_length,
    ResolvedRope* rope) {
  if (!std::holds_alternative<DynamicNtkScaling>(rope->spec.scaling) &&
      !std::holds_alternative<LongRopeScaling>(rope->spec.scaling)) {
    return 0;
  }
  const std::int64_t original = OriginalMaxPositionEmbeddings(rope->spec);
  if (sequence_length.has_value()) {
    if (*sequence_length > 0) return *sequence_length;
    return MustBe("sequence_length", *sequence_length, "> 0");
  }
  if (missing_length == MissingLength::kError) {
    return FieldRequired(
        "sequence_length",
        absl::StrCat("is unset, and ", ScalingName(rope->spec),
                     " frequencies depend on it (original maximum ", original,
                     "); give the length in tokens"));
  }
  Assume("sequence_length", absl::StrCat(original),
         "unset; the original maximum", rope);
  return original;
}

absl::Status AppendGeometricFrequencies(const RopeSpec& spec, double theta,
                                        std::int32_t n, std::int32_t first_pair,
                                        std::int64_t length,
                                        std::vector<double>* inv_freq) {
  const double d = 2.0 * n;
  Wide ln_base = Log(theta);
  if (const auto* ntk = std::get_if<NtkScaling>(&spec.scaling)) {
    // NTK's greater base divides the lowest frequency by the factor f, and
    // keeps the highest frequency: (base * f^(d/(d-2)))^(-(d-2)/d) =
    // base^(-(d-2)/d) / f.
    if (n == 1) return TooFewPairs("ntk");
    ln_base = ln_base + Log(ntk->factor) * d / (d - 2);
  } else if (const auto* dynamic =
                 std::get_if<DynamicNtkScaling>(&spec.scaling)) {
    if (n == 1) return TooFewPairs("dynamic_ntk");
    // Dynamic NTK is NTK with a factor that starts at 1 and grows with the
    // length. At twice the maximum length the factor is dynamic->factor + 1, as
    // in transformers.
    if (length > dynamic->max_position_embeddings) {
      const auto maximum =
          static_cast<double>(dynamic->max_position_embeddings);
      const Wide beyond =
          (Wide(static_cast<double>(length)) - maximum) / maximum;
      ln_base = ln_base + Log(dynamic->factor * beyond + 1) * d / (d - 2);
    }
  }

  std::optional<YarnRamp> ramp;
  if (const auto* yarn = std::get_if<YarnScaling>(&spec.scaling)) {
    ramp.emplace(*yarn, ln_base, n);
  }
  // Frequency w of pair i after scaling: only the result is rounded to float64.
  const auto scaled = [&](const Wide& w, std::int32_t i) {
    return std::visit(
        [&](const auto& scaling) -> Wide {
          using T = std::decay_t<decltype(scaling)>;
          if constexpr (std::is_same_v<T, LinearScaling>) {
            return w / scaling.factor;
          } else if constexpr (std::is_same_v<T, YarnScaling>) {
            const Wide r = (*ramp)(i);
            return r * (w / scaling.factor) + (1 - r) * w;
          } else if constexpr (std::is_same_v<T, LongRopeScaling>) {
            const bool is_long =
                length > scaling.original_max_position_embeddings;
            return w / (is_long ? scaling.long_factor
                                : scaling.short_factor)[first_pair + i];
          } else if constexpr (std::is_same_v<T, Llama3Scaling>) {
            // Llama 3's scaling is YaRN with a ramp that is linear in the
            // number of rotations.
            const auto original =
                static_cast<double>(scaling.original_max_position_embeddings);
            const Wide rotations = original * w / (2 * kWidePi);
            const Wide low = scaling.low_freq_factor;
            const Wide t =
                std::clamp((rotations - low) / (scaling.high_freq_factor - low),
                           Wide(0), Wide(1));
            return (1 - t) * (w / scaling.factor) + t * w;
          } else if constexpr (std::is_same_v<T, ProportionalScaling>) {
            return i < scaling.rotating_pairs ? w / *scaling.factor : 0;
          } else {
            return w;
          }
        },
        spec.scaling);
  };
  const std::vector<Wide> powers = Powers(Exp(-ln_base / n), n);
  for (std::int32_t i = 0; i < n; ++i) {
    inv_freq->push_back(scaled(powers[i], i).high);
  }
  // Frequencies outside these bounds cannot be reduced exactly.
  for (std::size_t i = inv_freq->size() - n; i < inv_freq->size(); ++i) {
    const double w = (*inv_freq)[i];
    if (w != 0 && !(w >= kMinFrequency && w <= kMaxFrequency)) {
      return FieldInvalid(
          ScalingName(spec),
          absl::StrCat("gives pair ", i, " the frequency ", NumberText(w),
                       "; must be 0 or 2^-900 to 2^20"));
    }
  }
  return absl::OkStatus();
}

RampBounds YarnRampBounds(const YarnScaling& yarn, double theta,
                          std::int32_t pairs) {
  const YarnRamp ramp(yarn, Log(theta), pairs);
  return {ramp.low.high, ramp.high.high};
}

std::int64_t OriginalMaxPositionEmbeddings(const RopeSpec& spec) {
  return std::visit(
      [](const auto& scaling) -> std::int64_t {
        using T = std::decay_t<decltype(scaling)>;
        if constexpr (std::is_same_v<T, DynamicNtkScaling>) {
          return scaling.max_position_embeddings;
        } else if constexpr (requires {
                               scaling.original_max_position_embeddings;
                             }) {
          return scaling.original_max_position_embeddings;
        } else {
          return 0;
        }
      },
      spec.scaling);
}

absl::StatusOr<double> ScalingAttentionFactor(const RopeSpec& spec,
                                              std::int64_t length) {
  if (const auto* yarn = std::get_if<YarnScaling>(&spec.scaling)) {
    if (yarn->attention_factor.has_value()) return *yarn->attention_factor;
    // DeepSeek's mscale and mscale_all_dim have an effect only if both are set.
    // The attention factor is then the quotient of their YarnMscale().
    // DeepSeek's configurations write 0 for an absent mscale.
    const double mscale = yarn->mscale.value_or(0);
    const double all_dim = yarn->mscale_all_dim.value_or(0);
    if (mscale == 0 || all_dim == 0) {
      return YarnMscale(yarn->factor, 1).high;
    }
    const double attention_factor =
        (YarnMscale(yarn->factor, mscale) / YarnMscale(yarn->factor, all_dim))
            .high;
    if (!(attention_factor > 0 && std::isfinite(attention_factor))) {
      return FieldInvalid(
          "yarn.mscale",
          absl::StrCat(NumberText(*yarn->mscale), " with mscale_all_dim ",
                       NumberText(*yarn->mscale_all_dim),
                       " gives the amplitude ", NumberText(attention_factor),
                       "; amplitudes are finite and > 0"));
    }
    return attention_factor;
  }
  if (const auto* longrope = std::get_if<LongRopeScaling>(&spec.scaling)) {
    if (longrope->attention_factor.has_value()) {
      return *longrope->attention_factor;
    }
    // Phi-3 small has two attention factors, one for each list of factors.
    const std::optional<double>& mscale =
        length > longrope->original_max_position_embeddings
            ? longrope->long_mscale
            : longrope->short_mscale;
    if (mscale.has_value()) return *mscale;
    if (!longrope->factor.has_value()) {
      return FieldRequired(
          "longrope.factor",
          "is unset, and attention_factor and the mscale of the side in use "
          "are unset, too; the amplitude needs one of them");
    }
    // LongRoPE's factor (arXiv:2402.13753): sqrt(1 + ln(factor) /
    // ln(original)).
    if (*longrope->factor <= 1) return 1;
    const auto original =
        static_cast<double>(longrope->original_max_position_embeddings);
    return Exp(Log(1 + Log(*longrope->factor) / Log(original)) / 2).high;
  }
  return 1;
}

}  // namespace posenc::core
