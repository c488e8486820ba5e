#include "core/interpretation/compare.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/positions/positions.h"
#include "core/rope/scaling.h"
#include "core/rope/xpos.h"

namespace posenc::core::interpretation {
namespace {

constexpr double kDivergence = 0.01;  // radians; posenc.v1.RopeDifference

std::string PairingText(const RopeSpec& spec) {
  const auto name = [](Pairing pairing) {
    return pairing == Pairing::kInterleaved ? "interleaved" : "half-split";
  };
  if (spec.output_pairing == Pairing::kUnspecified ||
      spec.output_pairing == spec.pairing) {
    return name(spec.pairing);
  }
  return absl::StrCat(name(spec.pairing), " in and ", name(spec.output_pairing),
                      " out");
}

std::string SliceText(const ResolvedRope& rope) {
  // A slice that is as wide as the head is both leading and trailing.
  if (rope.spec.rotary_dim == rope.head_dim) return "leading";
  return rope.spec.slice == RotarySlice::kTrailing ? "trailing" : "leading";
}

// Returns the axis of each pair: axis 0 unless the encoding gives axes.
std::vector<std::int32_t> AxisOfPair(const ResolvedRope& rope) {
  if (!rope.axis_of_pair.empty()) return rope.axis_of_pair;
  return std::vector<std::int32_t>(rope.pairs(), 0);
}

std::string QueryScaleText(const std::optional<QueryScale>& scale) {
  if (!scale) return "none";
  return absl::StrCat("1 + ", NumberText(scale->beta), " ln(1 + floor((p + ",
                      scale->offset, ") / ", NumberText(scale->floor_scale),
                      "))");
}

bool SameXPos(const std::optional<XPos>& a, const std::optional<XPos>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->scale_base.value_or(kXPosScaleBase) ==
             b->scale_base.value_or(kXPosScaleBase) &&
         a->gamma.value_or(kXPosGamma) == b->gamma.value_or(kXPosGamma) &&
         a->center == b->center;
}

// Fills in the numbers of the difference. Both encodings must have the same
// layout of frequencies. The frequencies of a reversed encoding count as
// negative.
void CompareFrequencies(const ResolvedRope& a, const ResolvedRope& b,
                        RopeDifference* difference) {
  const double sign_a = a.spec.reverse ? -1 : 1;
  const double sign_b = b.spec.reverse ? -1 : 1;
  double most = 0;
  for (std::size_t i = 0; i < a.inv_freq.size(); ++i) {
    const double wa = sign_a * a.inv_freq[i];
    const double wb = sign_b * b.inv_freq[i];
    const double apart = std::abs(wa - wb);
    most = std::max(most, apart);
    const double scale = std::max(std::abs(wa), std::abs(wb));
    const double relative = scale > 0 ? apart / scale : 0;
    if (relative > difference->max_relative_frequency_difference) {
      difference->max_relative_frequency_difference = relative;
      difference->worst_pair =
          static_cast<std::int32_t>(i % std::max(a.pairs(), 1));
    }
  }
  if (most <= 0) return;
  // Finds the smallest integer p with p * most > kDivergence. The rounded
  // quotient may be too small by one, so the loop checks the products.
  double position = std::floor(kDivergence / most);
  while (position * most <= kDivergence && position < kMaxPosition) {
    position += 1;
  }
  if (position < kMaxPosition) {
    difference->first_diverging_position = static_cast<std::int64_t>(position);
  }
}

}  // namespace

std::string ScalingText(const RopeSpec& spec) {
  struct Describe {
    double theta;
    std::int32_t pairs;

    std::string operator()(std::monostate) const { return "no scaling"; }
    std::string operator()(const LinearScaling& s) const {
      return absl::StrCat("linear by ", NumberText(s.factor));
    }
    std::string operator()(const NtkScaling& s) const {
      return absl::StrCat("ntk by ", NumberText(s.factor));
    }
    std::string operator()(const DynamicNtkScaling& s) const {
      return absl::StrCat("dynamic ntk by ", NumberText(s.factor), " beyond ",
                          s.max_position_embeddings);
    }
    std::string operator()(const YarnScaling& s) const {
      const RampBounds ramp = YarnRampBounds(s, theta, pairs);
      return absl::StrCat(
          "yarn by ", NumberText(s.factor), " from ",
          s.original_max_position_embeddings, ", ramp between ",
          NumberText(s.beta_fast.value_or(32)), " and ",
          NumberText(s.beta_slow.value_or(1)),
          absl::StrFormat(" turns: pairs %.6g to %.6g", ramp.low, ramp.high),
          s.truncate.value_or(true) ? "" : ", not truncated");
    }
    std::string operator()(const LongRopeScaling& s) const {
      return absl::StrCat("longrope from ", s.original_max_position_embeddings);
    }
    std::string operator()(const Llama3Scaling& s) const {
      return absl::StrCat("llama3 by ", NumberText(s.factor), " from ",
                          s.original_max_position_embeddings, ", ramp ",
                          NumberText(s.low_freq_factor), " to ",
                          NumberText(s.high_freq_factor));
    }
    std::string operator()(const ProportionalScaling& s) const {
      return absl::StrCat("proportional by ", NumberText(s.factor.value_or(1)),
                          ", ", s.rotating_pairs, " pairs turning");
    }
    std::string operator()(const ExplicitFrequencies&) const {
      return "explicit frequencies";
    }
  };
  return std::visit(Describe{spec.rope_theta.value_or(0), spec.rotary_dim / 2},
                    spec.scaling);
}

RopeDifference CompareRopes(const ResolvedRope& a, const ResolvedRope& b) {
  RopeDifference difference;
  const auto explain = [&difference](std::string text) {
    difference.equal = false;
    difference.explanations.push_back(std::move(text));
  };
  const auto differ = [&explain](absl::string_view what,
                                 const std::string& of_a,
                                 const std::string& of_b) {
    if (of_a != of_b) {
      explain(absl::StrCat(what, ": ", of_a, " against ", of_b));
    }
  };
  if (a.spec.nope || b.spec.nope) {
    if (a.spec.nope != b.spec.nope) {
      explain(absl::StrCat("the ", a.spec.nope ? "first" : "second",
                           " has no positional encoding"));
    }
    differ("position-dependent factor of queries",
           QueryScaleText(a.query_scale), QueryScaleText(b.query_scale));
    return difference;
  }
  difference.attention_factor_ratio = b.attention_factor / a.attention_factor;
  differ("rotated channels", absl::StrCat(a.spec.rotary_dim),
         absl::StrCat(b.spec.rotary_dim));
  differ("rotated slice", SliceText(a), SliceText(b));
  differ("pairing", PairingText(a.spec), PairingText(b.spec));
  differ("direction of rotation", a.spec.reverse ? "reverse" : "forward",
         b.spec.reverse ? "reverse" : "forward");
  differ("position axes", absl::StrCat(a.axes()), absl::StrCat(b.axes()));
  differ("sets of frequencies (heads)", absl::StrCat(a.heads),
         absl::StrCat(b.heads));
  if (a.attention_factor != b.attention_factor) {
    explain(absl::StrCat("amplitude: ", NumberText(a.attention_factor),
                         " against ", NumberText(b.attention_factor),
                         "; attention logits differ by the square of the "
                         "ratio"));
  }
  differ("softmax scale multiplier", NumberText(a.softmax_scale_multiplier),
         NumberText(b.softmax_scale_multiplier));
  differ("position-dependent factor of queries", QueryScaleText(a.query_scale),
         QueryScaleText(b.query_scale));
  if (a.spec.angle_precision != b.spec.angle_precision) {
    explain("angle precision: one is exact, one rounds angles to float32");
  }
  if (!SameXPos(a.spec.xpos, b.spec.xpos)) explain("xPos decay differs");
  if (a.spec.rotary_dim != b.spec.rotary_dim || a.heads != b.heads ||
      a.frequency_axes != b.frequency_axes) {
    difference.explanations.push_back(
        "frequencies are not compared: their numbers differ");
    return difference;
  }
  if (AxisOfPair(a) != AxisOfPair(b)) {
    explain("pairs follow different position axes");
  }
  CompareFrequencies(a, b, &difference);
  if (a.inv_freq != b.inv_freq) {
    difference.equal = false;
    // Explicit frequencies have no base.
    if (a.spec.rope_theta && b.spec.rope_theta) {
      differ("base (rope_theta)", NumberText(*a.spec.rope_theta),
             NumberText(*b.spec.rope_theta));
    }
    differ("scaling", ScalingText(a.spec), ScalingText(b.spec));
    difference.explanations.push_back(absl::StrCat(
        "frequencies differ by up to ",
        absl::StrFormat("%.4g",
                        100 * difference.max_relative_frequency_difference),
        " %, most at pair ", difference.worst_pair,
        difference.first_diverging_position < 0
            ? "; no angle below position 2^31 differs by more than 0.01 rad"
            : absl::StrCat(
                  "; an angle differs by more than 0.01 rad from position ",
                  difference.first_diverging_position, " on")));
  }
  return difference;
}

absl::Status CompareScores(const ResolvedRope& a, const ResolvedRope& b,
                           std::int64_t length, const StopAsked& stop,
                           RopeDifference* difference) {
  const std::size_t frequencies =
      std::max(a.inv_freq.size(), b.inv_freq.size());
  if (frequencies > kMaxComparedFrequencies) {
    return FieldInvalid(
        "compare_with",
        absl::StrCat("beside ", frequencies, " frequencies; at most ",
                     kMaxComparedFrequencies, " are compared"));
  }
  Kept kept(a, b, stop);
  difference->length = length;
  difference->first_distance = kept.FirstDistance(length);
  difference->kept_at_length = kept.At(length);
  return kept.status();
}

}  // namespace posenc::core::interpretation
