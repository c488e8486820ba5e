#include "core/rope/frequencies.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/angle/quarter_turns.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/rope/scaling.h"
#include "core/rope/xpos.h"

// A spec is completed field by field, and each step relies on earlier steps:
//
//   width     rotary_dim, or head_dim if unset; it gives the number of pairs
//   theta     the base, unless frequencies or bases of axes are given
//   explicit  given frequencies, which also set heads and axes
//   axes      which pair follows which axis of the positions
//   xpos      needs a single axis
//   scaling   its own fields; then the length for its evaluation
//   frequencies, attention factor
//
// The order also decides which of several errors comes first.
namespace posenc::core {
namespace {

constexpr double kDefaultTheta = 10000;  // as in RoFormer's paper

// Limits the memory for the positions of all axes. No known encoding has more
// than four axes.
constexpr std::size_t kMaxAxes = 16;

// The greatest amplitude. The least amplitude is its inverse. With these
// bounds, the inverse of an amplitude and the quotient of two amplitudes
// (Reposition) are normal float32 numbers.
constexpr double kMaxAmplitude = 0x1p62;

bool IsExplicit(const RopeSpec& spec) {
  return std::holds_alternative<ExplicitFrequencies>(spec.scaling);
}

// NoPE excludes all other fields, because they would have no effect.
absl::Status CheckNope(const RopeSpec& spec) {
  const std::pair<absl::string_view, bool> fields[] = {
      {"rotary_dim", spec.rotary_dim != 0},
      {"slice", spec.slice != RotarySlice::kLeading},
      {"rope_theta", spec.rope_theta.has_value()},
      {"pairing", spec.pairing != Pairing::kUnspecified},
      {"output_pairing", spec.output_pairing != Pairing::kUnspecified},
      {"amplitude", spec.attention_factor.has_value()},
      {"reverse", spec.reverse},
      {"angle_precision", spec.angle_precision != AnglePrecision::kExact},
      {"axes", spec.axes.has_value()},
      {"xpos", spec.xpos.has_value()},
      {"a scaling", spec.scaling.index() != 0}};
  for (const auto& [name, is_set] : fields) {
    if (is_set) {
      return FieldInvalid("nope", absl::StrCat("is set together with ", name,
                                               "; it excludes every other "
                                               "field"));
    }
  }
  return absl::OkStatus();
}

absl::Status CompleteWidth(ResolvedRope* rope) {
  RopeSpec& spec = rope->spec;
  std::int64_t width = spec.rotary_dim;
  std::string origin;
  if (width == 0) {
    if (rope->head_dim == 0) {
      return FieldRequired("rotary_dim",
                           "is unset, and there is no tensor to take head_dim "
                           "from; set it");
    }
    width = rope->head_dim;
    origin = " (unset: head_dim)";
    Assume("rotary_dim", absl::StrCat(width), "unset; the whole head", rope);
  }
  if (width < 2 || width % 2 != 0) {
    return FieldInvalid("rotary_dim", absl::StrCat("is ", width, origin,
                                                   "; must be even and at "
                                                   "least 2"));
  }
  if (rope->head_dim != 0 && width > rope->head_dim) {
    return FieldInvalid("rotary_dim",
                        absl::StrCat("is ", width, ", and head_dim is ",
                                     rope->head_dim, "; must not exceed it"));
  }
  if (width > kMaxRotaryDim) {
    return FieldInvalid("rotary_dim",
                        absl::StrCat("is ", width, origin, "; at most ",
                                     kMaxRotaryDim, " is served"));
  }
  spec.rotary_dim = static_cast<std::int32_t>(width);
  return absl::OkStatus();
}

absl::Status CheckTheta(absl::string_view field, double theta) {
  if (theta > 1 && std::isfinite(theta)) return absl::OkStatus();
  return MustBe(field, theta, "finite and > 1");
}

absl::Status CompleteTheta(ResolvedRope* rope) {
  RopeSpec& spec = rope->spec;
  if (IsExplicit(spec)) {
    if (!spec.rope_theta.has_value()) return absl::OkStatus();
    return FieldInvalid("rope_theta",
                        absl::StrCat("is ", NumberText(*spec.rope_theta),
                                     " beside explicit_frequencies, which "
                                     "exclude it; unset one"));
  }
  if (spec.rope_theta.has_value()) {
    return CheckTheta("rope_theta", *spec.rope_theta);
  }
  if (spec.axes.has_value() && !spec.axes->axis_thetas.empty()) {
    return absl::OkStatus();
  }
  Default("rope_theta", kDefaultTheta, "unset; the paper's default",
          &spec.rope_theta, rope);
  return absl::OkStatus();
}

absl::Status CheckSections(const RotaryAxes& axes, std::int32_t pairs) {
  if (axes.sections.empty()) {
    return FieldRequired("axes.sections",
                         absl::StrCat("is empty; one number of pairs per axis, "
                                      "summing to rotary_dim / 2 = ",
                                      pairs));
  }
  if (axes.sections.size() > kMaxAxes) {
    return FieldInvalid(
        "axes.sections",
        absl::StrCat("has ", axes.sections.size(), " axes; at most ", kMaxAxes,
                     " are served"));
  }
  std::int64_t sum = 0;
  for (std::size_t a = 0; a < axes.sections.size(); ++a) {
    if (axes.sections[a] < 0) {
      return MustBe(absl::StrCat("axes.sections[", a, "]"), axes.sections[a],
                    ">= 0");
    }
    sum += axes.sections[a];
  }
  if (sum != pairs) {
    return FieldInvalid(
        "axes.sections",
        absl::StrCat("[", absl::StrJoin(axes.sections, ", "), "] sum to ", sum,
                     "; must sum to rotary_dim / 2 = ", pairs));
  }
  return absl::OkStatus();
}

// Checks that position_axes is a permutation of the axes, if it is given.
absl::Status CheckPositionAxes(const RotaryAxes& axes) {
  if (axes.position_axes.empty()) return absl::OkStatus();
  const std::size_t count = axes.sections.size();
  if (axes.position_axes.size() != count) {
    return FieldInvalid("axes.position_axes",
                        absl::StrCat("has ", axes.position_axes.size(),
                                     " values; must have one for each of ",
                                     count, " sections, or none"));
  }
  std::vector<bool> taken(count);
  for (std::size_t a = 0; a < count; ++a) {
    const std::int32_t axis = axes.position_axes[a];
    if (axis < 0 || axis >= static_cast<std::int32_t>(count) || taken[axis]) {
      return MustBe(absl::StrCat("axes.position_axes[", a, "]"), axis,
                    absl::StrCat("each of 0..", count - 1, " once"));
    }
    taken[axis] = true;
  }
  return absl::OkStatus();
}

absl::Status CheckPerAxisFields(const RopeSpec& spec) {
  const RotaryAxes& axes = *spec.axes;
  const bool per_axis = axes.assignment == AxisAssignment::kPerAxis;
  if (!axes.axis_thetas.empty()) {
    if (!per_axis) {
      return FieldInvalid("axes.axis_thetas",
                          "goes with ASSIGNMENT_PER_AXIS only; use rope_theta");
    }
    if (IsExplicit(spec)) {
      return FieldInvalid("axes.axis_thetas",
                          "is set beside explicit_frequencies, which exclude "
                          "it; unset one");
    }
    if (axes.axis_thetas.size() != axes.sections.size()) {
      return FieldInvalid("axes.axis_thetas",
                          absl::StrCat("has ", axes.axis_thetas.size(),
                                       " values; must have one for each of ",
                                       axes.sections.size(), " axes"));
    }
    for (std::size_t a = 0; a < axes.axis_thetas.size(); ++a) {
      RETURN_IF_ERROR(CheckTheta(absl::StrCat("axes.axis_thetas[", a, "]"),
                                 axes.axis_thetas[a]));
    }
  }
  if (axes.halves_per_axis &&
      (!per_axis || spec.pairing != Pairing::kHalfSplit)) {
    return FieldInvalid("axes.halves_per_axis",
                        "goes with ASSIGNMENT_PER_AXIS and PAIRING_HALF_SPLIT "
                        "only");
  }
  return absl::OkStatus();
}

// The axis of each pair, by the rules of RotaryAxes.Assignment. Examples for
// the axes t, h, w with sections [2, 1, 1], or [1, 1, 1] for the alternating
// tail:
//   sectioned, per axis   t t h w
//   interleaved           t h w t     (Qwen3-VL; remaining pairs have axis 0)
//   alternating tail      h w t       (ERNIE: h and w alternate, t comes last)
std::vector<std::int32_t> AssignPairs(const RotaryAxes& axes,
                                      std::int32_t pairs) {
  const std::vector<std::int32_t>& sections = axes.sections;
  const auto count = static_cast<std::int32_t>(sections.size());
  std::vector<std::int32_t> axis_of_pair;
  axis_of_pair.reserve(pairs);
  switch (axes.assignment) {
    case AxisAssignment::kInterleaved:
      for (std::int32_t i = 0; i < pairs; ++i) {
        const std::int32_t a = i % count;
        const bool follows = i < std::int64_t{count} * sections[a];
        axis_of_pair.push_back(follows ? a : 0);
      }
      break;
    case AxisAssignment::kAlternatingTail:
      for (std::int32_t i = 0; i < pairs; ++i) {
        axis_of_pair.push_back(i < pairs - sections[0] ? 1 + i % 2 : 0);
      }
      break;
    default:
      for (std::int32_t a = 0; a < count; ++a) {
        axis_of_pair.insert(axis_of_pair.end(), sections[a], a);
      }
      break;
  }
  return axis_of_pair;
}

absl::Status CompleteAxes(ResolvedRope* rope) {
  const RopeSpec& spec = rope->spec;
  if (!spec.axes.has_value()) return absl::OkStatus();
  const RotaryAxes& axes = *spec.axes;
  if (axes.assignment == AxisAssignment::kUnspecified) {
    return FieldRequired("axes.assignment",
                         "is unset; say which pairs follow "
                         "which axis");
  }
  RETURN_IF_ERROR(CheckSections(axes, rope->pairs()));
  RETURN_IF_ERROR(CheckPositionAxes(axes));
  RETURN_IF_ERROR(CheckPerAxisFields(spec));
  if (axes.assignment == AxisAssignment::kAlternatingTail &&
      (axes.sections.size() != 3 || axes.sections[1] != axes.sections[2])) {
    return FieldInvalid(
        "axes.sections",
        absl::StrCat("are [", absl::StrJoin(axes.sections, ", "),
                     "]; ASSIGNMENT_ALTERNATING_TAIL has three "
                     "axes (time, height, width), and the last "
                     "two are equal"));
  }
  if (axes.sections.size() == 1) return absl::OkStatus();
  rope->axis_of_pair = AssignPairs(axes, rope->pairs());
  std::vector<std::int32_t> assigned(axes.sections.size());
  for (const std::int32_t a : rope->axis_of_pair) ++assigned[a];
  if (assigned != axes.sections) {
    return FieldInvalid(
        "axes.sections",
        absl::StrCat("are [", absl::StrJoin(axes.sections, ", "),
                     "], but interleaving ", rope->pairs(), " pairs gives [",
                     absl::StrJoin(assigned, ", "),
                     "]; use sections that it can meet"));
  }
  if (!axes.position_axes.empty()) {
    for (std::int32_t& a : rope->axis_of_pair) a = axes.position_axes[a];
  }
  return absl::OkStatus();
}

absl::Status CompleteXPos(ResolvedRope* rope) {
  if (!rope->spec.xpos.has_value()) return absl::OkStatus();
  XPos& xpos = *rope->spec.xpos;
  if (rope->axes() > 1) {
    return FieldInvalid("xpos", absl::StrCat("goes with one axis, and there "
                                             "are ",
                                             rope->axes()));
  }
  Default("xpos.scale_base", kXPosScaleBase, "unset; the paper's default",
          &xpos.scale_base, rope);
  Default("xpos.gamma", kXPosGamma, "unset; the paper's default", &xpos.gamma,
          rope);
  Faults faults;
  faults.Note(CheckPositive("xpos.scale_base", *xpos.scale_base));
  faults.Note(CheckPositive("xpos.gamma", *xpos.gamma));
  if (!std::isfinite(xpos.center)) {
    faults.Note(MustBe("xpos.center", xpos.center, "finite"));
  }
  return faults.status();
}

// Copies explicit frequencies. This function runs before CompleteAxes, so only
// heads, axes and rotary_dim are known.
absl::Status CompleteExplicit(ResolvedRope* rope) {
  auto* given = std::get_if<ExplicitFrequencies>(&rope->spec.scaling);
  if (given == nullptr) return absl::OkStatus();
  if (given->heads < 0) {
    return MustBe("explicit_frequencies.heads", given->heads, ">= 0");
  }
  if (given->axes < 0 || given->axes > static_cast<int>(kMaxAxes)) {
    return MustBe("explicit_frequencies.axes", given->axes,
                  absl::StrCat("0..", kMaxAxes));
  }
  if (given->axes > 1 && rope->spec.axes.has_value()) {
    return FieldInvalid("axes", absl::StrCat("is set beside ", given->axes,
                                             " explicit_frequencies.axes, "
                                             "which exclude it; unset one"));
  }
  given->axes = std::max(given->axes, 1);
  const std::int64_t heads = std::max(given->heads, 1);
  const std::int64_t expected = heads * given->axes * rope->pairs();
  const auto actual = static_cast<std::int64_t>(given->values.size());
  if (actual == 0) {
    return FieldRequired("explicit_frequencies.values",
                         absl::StrCat("is empty; must have ", expected));
  }
  if (actual != expected) {
    return FieldInvalid(
        "explicit_frequencies.values",
        absl::StrCat("has ", actual, " values; must have heads ", heads,
                     " * axes ", given->axes, " * pairs ", rope->pairs(), " = ",
                     expected));
  }
  // An angle is a sum over the axes, so the bound on a frequency
  // (angle/quarter_turns.h) is divided by the number of axes.
  const double limit = kMaxFrequency / given->axes;
  for (std::size_t i = 0; i < given->values.size(); ++i) {
    const double magnitude = std::fabs(given->values[i]);
    if (!(magnitude <= limit) ||
        (magnitude != 0 && magnitude < kMinFrequency)) {
      return MustBe(absl::StrCat("explicit_frequencies.values[", i, "]"),
                    given->values[i],
                    absl::StrCat("0 or of magnitude 2^-900 to 2^20 / axes = ",
                                 NumberText(limit)));
    }
  }
  rope->inv_freq = given->values;
  rope->heads = given->heads;
  rope->frequency_axes = given->axes;
  return absl::OkStatus();
}

absl::Status AppendFrequencies(std::int64_t length, ResolvedRope* rope) {
  const RopeSpec& spec = rope->spec;
  if (IsExplicit(spec)) return absl::OkStatus();
  if (!spec.axes.has_value() ||
      spec.axes->assignment != AxisAssignment::kPerAxis) {
    return AppendGeometricFrequencies(spec, *spec.rope_theta, rope->pairs(), 0,
                                      length, &rope->inv_freq);
  }
  const RotaryAxes& axes = *spec.axes;
  std::int32_t first_pair = 0;
  for (std::size_t a = 0; a < axes.sections.size(); ++a) {
    if (axes.sections[a] == 0) continue;
    const double theta =
        axes.axis_thetas.empty() ? *spec.rope_theta : axes.axis_thetas[a];
    RETURN_IF_ERROR(AppendGeometricFrequencies(
        spec, theta, axes.sections[a], first_pair, length, &rope->inv_freq));
    first_pair += axes.sections[a];
  }
  return absl::OkStatus();
}

absl::Status CompleteAttentionFactor(std::int64_t length, ResolvedRope* rope) {
  std::optional<double>& attention_factor = rope->spec.attention_factor;
  ASSIGN_OR_RETURN(const double implied,
                   ScalingAttentionFactor(rope->spec, length));
  const bool given = attention_factor.has_value();
  if (!given) attention_factor = implied;
  // The condition is negated so that it also rejects NaN.
  if (!(*attention_factor >= 1 / kMaxAmplitude &&
        *attention_factor <= kMaxAmplitude)) {
    return FieldInvalid("amplitude",
                        absl::StrCat("is ", NumberText(*attention_factor),
                                     given ? "" : " by the scaling",
                                     "; must be 2^-62 to 2^62"));
  }
  rope->attention_factor = *attention_factor;
  return absl::OkStatus();
}

}  // namespace

std::int32_t ResolvedRope::axes() const {
  if (spec.axes.has_value()) {
    return std::max<std::int32_t>(
        1, static_cast<std::int32_t>(spec.axes->sections.size()));
  }
  return frequency_axes;
}

bool ResolvedRope::needs_ids() const {
  return axes() > 1 && (frequency_axes > 1 ||
                        spec.axes->assignment == AxisAssignment::kPerAxis);
}

absl::StatusOr<ResolvedRope> ResolveSpec(
    const RopeSpec& spec, std::int64_t head_dim,
    std::optional<std::int64_t> sequence_length, MissingLength missing_length) {
  ResolvedRope rope;
  rope.spec = spec;
  rope.head_dim = head_dim;
  if (spec.nope) {
    absl::Status status = CheckNope(spec);
    if (!status.ok()) return status;
    return rope;
  }
  Faults faults;
  if (spec.pairing == Pairing::kUnspecified) {
    faults.Note(
        FieldRequired("pairing",
                      "is unset; the wrong one would not be noticed, so "
                      "there is no default"));
  }
  if (spec.output_pairing == Pairing::kUnspecified) {
    rope.spec.output_pairing = spec.pairing;
  }
  const bool width = faults.Note(CompleteWidth(&rope));
  faults.Note(CompleteTheta(&rope));
  // The next steps need the number of pairs.
  if (!width) return faults.status();
  if (faults.Note(CompleteExplicit(&rope)) &&
      faults.Note(CompleteAxes(&rope))) {
    faults.Note(CompleteXPos(&rope));
  }
  faults.Note(CompleteScaling(&rope));
  RETURN_IF_ERROR(faults.status());
  ASSIGN_OR_RETURN(const std::int64_t length,
                   ScalingLength(sequence_length, missing_length, &rope));
  rope.original_max_position_embeddings =
      OriginalMaxPositionEmbeddings(rope.spec);
  RETURN_IF_ERROR(AppendFrequencies(length, &rope));
  RETURN_IF_ERROR(CompleteAttentionFactor(length, &rope));
  return rope;
}

}  // namespace posenc::core
