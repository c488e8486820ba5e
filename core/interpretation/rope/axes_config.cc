// ReadAxes() of rope_config.h: the position axes that a rope dict gives as
// M-RoPE's sections.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/rope/rope_config.h"

namespace posenc::core::interpretation {
namespace {

// True if the reader's class reads sections. transformers' classes without
// sections have one position axis, whatever sections a file gives.
bool ReadsSections(const RopeDict& from) {
  return !from.is_hf() || from.family.any_names || from.family.reads_sections ||
         from.family.sections[0] > 0 || IsRemote(from.model_type);
}

// Returns how pairs are assigned to axes. In transformers, the class decides
// the assignment, not a key of the file.
AxisAssignment AssignmentOf(const RopeDict& from) {
  constexpr absl::string_view kKey = "mrope_interleaved";
  const auto given = from.dict.Flag(kKey);
  const AxisAssignment own = from.family.axes;
  if (!given) return own;
  const bool is_own = *given == (own == AxisAssignment::kInterleaved);
  if (from.is_hf() && !from.family.any_names) {
    if (!is_own) {
      from.dict.Warn(kKey, " is ", *given ? "true" : "false", ", which ",
                     from.Class(), " does not read: its sections are ",
                     *given ? "not " : "", "interleaved");
    }
    return own;
  }
  return *given ? AxisAssignment::kInterleaved : own;
}

std::optional<RotaryAxes> GivenAxes(const RopeDict& from) {
  const absl::string_view key =
      from.dict.Has("mrope_section") ? "mrope_section" : "xdrope_section";
  if (!from.dict.Has(key)) return std::nullopt;
  if (!ReadsSections(from)) {
    from.dict.Warn(key, " ", Shortened(from.dict.At(key)),
                   " is not read: ", from.Class(), " has one position axis");
    from.dict.MarkRead("mrope_interleaved");
    return std::nullopt;
  }
  from.report().given_by["sections"] = from.dict.Path(key);
  RotaryAxes axes;
  for (const double section : from.dict.Numbers(key)) {
    if (!(section >= 0 && section <= kMaxRotaryDim) ||
        section != std::floor(section)) {
      from.dict.Fail(key, "has an element ", NumberText(section),
                     "; sections are numbers of pairs");
      return std::nullopt;
    }
    axes.sections.push_back(static_cast<std::int32_t>(section));
  }
  axes.assignment = AssignmentOf(from);
  if (axes.assignment == AxisAssignment::kAlternatingTail) {
    if (axes.sections.size() != 3) {
      from.dict.Fail(key, "must have 3 elements: height, width, time");
      return std::nullopt;
    }
    // ERNIE's files list height, width, time, but the axes are time, height,
    // width.
    axes.sections = {axes.sections[2], axes.sections[0], axes.sections[1]};
  }
  return axes;
}

// Changes the list to three sections, for classes with three axes. With
// sectioned axes, section i follows axis i mod 3, so missing sections count as
// empty. With interleaved axes, only the first three sections are read.
void TakeThree(const RopeDict& from, RotaryAxes* axes) {
  constexpr std::size_t kAxes = 3;
  std::vector<std::int32_t>& sections = axes->sections;
  const std::size_t count = sections.size();
  if (count == 0 || count == kAxes || from.family.sections[0] == 0 ||
      from.rules.profile == Profile::kLlamaCpp) {
    return;
  }
  const std::string fact =
      absl::StrCat("has ", count, " elements, but the class of model_type ",
                   from.model_type, " has three axes: transformers ");
  const bool is_interleaved = axes->assignment == AxisAssignment::kInterleaved;
  if (is_interleaved && count < kAxes) {
    from.dict.Fail("mrope_section", fact, "fails");
    return;
  }
  const bool has_more = std::any_of(
      sections.begin() + static_cast<std::ptrdiff_t>(std::min(count, kAxes)),
      sections.end(), [](std::int32_t section) { return section > 0; });
  if (!is_interleaved && has_more) {
    from.dict.Fail(
        "mrope_section", fact,
        "turns section i by axis i mod 3, and three sections cannot say that");
    return;
  }
  from.dict.Warn("mrope_section", " ", fact,
                 is_interleaved ? "reads the first three elements"
                                : "turns section i by axis i mod 3",
                 "; it is read the same way here");
  sections.resize(kAxes);
}

// Returns the class's default sections.
std::optional<RotaryAxes> DefaultAxes(const RopeDict& from, RopeSpec* spec) {
  const auto& [a, b, c] = from.family.sections;
  if (a == 0 && from.family.reads_sections) {
    from.dict.Assume("mrope_section", "",
                     "absent, and transformers cannot apply the rope without "
                     "it; read as one axis");
  }
  if (a == 0) return std::nullopt;
  const std::int32_t pairs = spec->rotary_dim / 2;
  const bool fits = a + b + c == pairs;
  if (!fits && from.family.axes != AxisAssignment::kInterleaved) {
    const std::string why = absl::StrCat(
        "absent, and the class's own ", a, ", ", b, ", ", c,
        " do not sum to the ", pairs,
        " pairs, so transformers cannot apply it; read as one axis");
    from.dict.Assume("mrope_section", "", why);
    // Also warns for ERNIE's class, which fails as soon as it is constructed.
    // Other classes fail only when their rope is applied.
    if (from.family.axes == AxisAssignment::kAlternatingTail) {
      from.dict.Warn("mrope_section", " is ", why);
    }
    return std::nullopt;
  }
  // If the sections do not fit, FitSections() reports the assumption.
  if (fits) {
    from.dict.Assume("mrope_section", absl::StrCat(a, ", ", b, ", ", c),
                     DefaultOf(from.rules));
  }
  RotaryAxes axes = {.assignment = from.family.axes, .sections = {a, b, c}};
  if (axes.assignment == AxisAssignment::kAlternatingTail) {
    axes.sections = {c, a, b};
  }
  return axes;
}

// The sum of interleaved sections may differ from the number of pairs. Pair i
// follows axis a = i mod 3 if i < 3 * sections[a], else the first axis. Sets
// the sections to the resulting number of pairs of each axis.
void FitSections(const RopeDict& from, RopeSpec* spec) {
  std::optional<RotaryAxes>& axes = spec->axes;
  if (!axes || axes->assignment != AxisAssignment::kInterleaved ||
      axes->sections.size() != 3 || from.rules.profile == Profile::kLlamaCpp) {
    return;
  }
  std::vector<std::int32_t> fitted(3);
  for (std::int32_t i = 0; i < spec->rotary_dim / 2; ++i) {
    const std::int32_t a = i % 3;
    ++fitted[i < 3 * std::int64_t{axes->sections[a]} ? a : 0];
  }
  if (fitted == axes->sections) return;
  if (from.Row(ReadingRule::kFailsAtSections) != nullptr) {
    from.dict.Warn("mrope_section", " [", absl::StrJoin(axes->sections, ", "),
                   "] does not sum to the ", spec->rotary_dim / 2,
                   " pairs, and ", from.Class(), " refuses that; [",
                   absl::StrJoin(fitted, ", "), "] is used");
  }
  from.dict.Assume(
      "mrope_section", absl::StrJoin(fitted, ", "),
      absl::StrCat("[", absl::StrJoin(axes->sections, ", "), "] for ",
                   spec->rotary_dim / 2,
                   " pairs: the first axis has those that no other claims"));
  axes->sections = fitted;
}

}  // namespace

void ReadAxes(const RopeDict& from, RopeSpec* spec) {
  spec->axes = GivenAxes(from);
  if (spec->axes) TakeThree(from, &*spec->axes);
  if (!spec->axes) spec->axes = DefaultAxes(from, spec);
  FitSections(from, spec);
}

}  // namespace posenc::core::interpretation
