#include "core/interpretation/formats/diffusion_config.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/formats/tower_config.h"

namespace posenc::core::interpretation {
namespace {

// The reason for an assumption.
constexpr char kDefault[] = "absent; the class's default";

struct DiffusionFamily {
  absl::string_view classes;  // separated by blanks
  // Key of a list with the number of channels of each axis. If the key is
  // empty, each axis has a third of attention_head_dim, and time also has the
  // remainder (Wan).
  absl::string_view widths_key = {};
  std::int32_t widths[4] = {};       // defaults, one for each of `axes`
  absl::string_view theta_key = {};  // empty: the base is fixed
  double theta = 10000;
  bool float32 = false;
  absl::string_view axes = "thw";
  TextTokens text = TextTokens::kNone;
  bool centered = false;
  bool counts_grids = false;
};

constexpr DiffusionFamily kFamilies[] = {
#include "diffusion.inc"
};

// Returns the number of channels of each axis. Each number is even, and their
// sum is the width of a head.
std::vector<std::int32_t> ReadWidths(const JsonObject& config,
                                     const DiffusionFamily& family) {
  const std::optional<std::int64_t> head = config.Integer("attention_head_dim");
  if (family.widths_key.empty()) {
    constexpr std::int64_t kWanHead = 128;  // the class's default
    const std::int64_t width = head.value_or(kWanHead);
    if (!head) {
      config.Assume("attention_head_dim", absl::StrCat(width), kDefault);
    }
    if (width < 6 || width % 2 != 0 || width > kMaxRotaryDim) {
      config.Fail("attention_head_dim", "is ", width,
                  "; it must be even, 6 to ", kMaxRotaryDim);
      return {};
    }
    const auto third = static_cast<std::int32_t>(2 * (width / 6));
    return {static_cast<std::int32_t>(width) - 2 * third, third, third};
  }
  std::vector<std::int32_t> widths;
  std::vector<double> given = config.Numbers(family.widths_key);
  if (!config.Has(family.widths_key)) {
    given.assign(family.widths, family.widths + family.axes.size());
    config.Assume(family.widths_key, absl::StrJoin(given, ", "), kDefault);
  }
  double sum = 0;
  for (const double width : given) {
    if (!(width >= 2 && width <= kMaxRotaryDim && std::fmod(width, 2) == 0)) {
      config.Fail(family.widths_key, "has ", NumberText(width),
                  "; each must be an even number of channels");
      return {};
    }
    widths.push_back(static_cast<std::int32_t>(width));
    sum += width;
  }
  if (widths.size() != family.axes.size()) {
    config.Fail(family.widths_key, "has ", widths.size(), " values; there are ",
                family.axes.size(), " axes");
    return {};
  }
  if (head && static_cast<double>(*head) != sum) {
    config.Fail(family.widths_key, "sums to ", NumberText(sum),
                ", and attention_head_dim is ", *head,
                "; the whole head turns");
    return {};
  }
  return widths;
}

double ReadTheta(const JsonObject& config, const DiffusionFamily& family) {
  if (family.theta_key.empty()) return family.theta;
  const std::optional<double> theta = config.Number(family.theta_key);
  if (!theta) {
    config.Assume(family.theta_key, NumberText(family.theta), kDefault);
  }
  return theta.value_or(family.theta);
}

}  // namespace

bool IsDiffusionConfig(const JsonObject& root) {
  return !root.Contains("model_type") && root.Text("_class_name").has_value();
}

ModelRope ReadDiffusion(const JsonObject& config, ModelPart part,
                        Profile profile) {
  if (part != ModelPart::kUnspecified && part != ModelPart::kVision) {
    config.report().Refuse(FieldInvalid(
        "part", "a diffusion transformer is one part; leave it unset"));
    return {};
  }
  const std::string name = config.Text("_class_name").value_or("");
  const DiffusionFamily* const family =
      FindRow(kFamilies, &DiffusionFamily::classes, name);
  if (family == nullptr) {
    config.Fail(
        "_class_name", "is \"", name,
        "\", and its rotary encoding is not known here; send it as a spec");
    return {};
  }
  ModelRope rope;
  rope.grid = {.axes = GridAxesOf(family->axes),
               .text = family->text,
               .centered = family->centered,
               .counts_grids = family->counts_grids};
  const std::vector<std::int32_t> widths = ReadWidths(config, *family);
  const double theta = ReadTheta(config, *family);
  RotaryAxes axes = {.assignment = AxisAssignment::kPerAxis};
  for (const std::int32_t width : widths) {
    axes.sections.push_back(width / 2);
    rope.spec.rotary_dim += width;
  }
  rope.head_dim = rope.spec.rotary_dim;
  rope.spec.pairing = Pairing::kInterleaved;
  rope.spec.axes = std::move(axes);
  if (!(theta > 1 && std::isfinite(static_cast<float>(theta)))) {
    config.Fail(family->theta_key, "is ", NumberText(theta),
                "; it must be finite and > 1");
  } else if (family->float32) {
    ExplicitFrequencies given;
    for (const std::int32_t width : widths) {
      for (const double w : Float32Frequencies(theta, width, 0, 2)) {
        given.values.push_back(w);
      }
    }
    rope.spec.scaling = std::move(given);
  } else {
    rope.spec.rope_theta = theta;
  }
  if (profile != Profile::kHf) {
    config.report().Warn(RulesOf(profile).project,
                         " is not asked about diffusion transformers: this is "
                         "diffusers' interpretation");
  }
  // rope_max_seq_len is only the length of a table of positions, so it needs no
  // warning.
  config.MarkRead("rope_max_seq_len");
  for (const std::string& key : config.Keys()) {
    const bool rotary = absl::StartsWith(key, "rope_") ||
                        absl::StartsWith(key, "axes_dim") || key == "theta";
    if (rotary && !config.WasRead(key)) {
      config.Warn(
          key, " is not read: diffusers' ", name,
          family->theta_key.empty() ? " has a base of its own, " : " takes ",
          family->theta_key.empty() ? NumberText(family->theta)
                                    : std::string(family->theta_key));
    }
  }
  config.report().Assume("axes",
                         family->axes.size() == 4 ? "time, height, width, text"
                         : family->axes.size() == 2 ? "height, width"
                                                    : "time, height, width",
                         absl::StrCat("order of a position's axes in ", name));
  return rope;
}

}  // namespace posenc::core::interpretation
