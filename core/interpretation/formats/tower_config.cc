#include "core/interpretation/formats/tower_config.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/error.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/rope/rope_config.h"

namespace posenc::core::interpretation {

// The frequencies of an axis that has n of the d / 2 pairs of a head.
enum class TowerFrequencies {
  // theta^(-i/n).
  kOfAxis,
  // theta^(-2i/d): the first axis has the even i, the second axis the odd i
  // (Pixtral).
  kShared,
  // theta^(-4i/d). The class computes the exponent as i times the step 4/d,
  // from 0 to 1 (DINOv3).
  kUnitSteps,
  // theta^(-2i/r), r = int(head_dim * partial_rotary_factor). All heads
  // together are rotated like one head of the model's width (EfficientLoFTR).
  kOfWidth,
};

// The part of rope_parameters that a class reads.
enum class TowerDict {
  kAxial,      // the base; other types than axial and default are refused
  kThetaOnly,  // the base, whatever the type
  kNone,       // nothing: rope_theta is beside the dict
};

struct Tower {
  absl::string_view model_types;  // separated by blanks
  // `parents` are model types whose vision_config always describes this tower,
  // whatever type the vision_config names. `default_of` are model types whose
  // vision_config describes this tower if it names no type.
  absl::string_view parents = {};
  absl::string_view default_of = {};

  Pairing pairing = Pairing::kHalfSplit;
  bool halves_per_axis = false;
  TowerFrequencies frequencies = TowerFrequencies::kOfAxis;
  // Axes of a position, one letter each: time, height, width.
  absl::string_view axes = "hw";
  // The letters of `axes` in the order in which pairs get their axes: the first
  // pairs have the axis of the first letter, and so on. If `alternating`, the
  // pairs take the axes of the letters in turn.
  absl::string_view pair_axes = "hw";
  bool alternating = false;

  double theta = 10000;
  TowerDict dict = TowerDict::kAxial;
  // The width of a head: head_dim if `reads_head_dim`, else width / (heads *
  // divisor). Each of width_keys and heads_keys has the names of one number.
  // The class takes the first name that the file has. The last name is the
  // class's own name; messages use it if the file has none of the names.
  bool reads_head_dim = true;
  absl::string_view width_keys = "hidden_size";
  std::int64_t width = 0;
  absl::string_view heads_keys = "num_attention_heads";
  std::int64_t heads = 16;
  absl::string_view divisor_key = {};
  std::int64_t head_dim = 0;  // the default; 0: no default

  // The positions of a grid: see TowerGrid.
  std::int32_t merge = 1;
  absl::string_view merge_key = {};
  std::int32_t first = 0;
  std::int32_t leading = 0;
  std::int32_t trailing = 0;
  std::int64_t window = 0;  // default of window_size; 0: no windows
  bool centers = false;

  absl::string_view warning = {};
  // Parts ("vision audio") that the tower reads as one sequence of images,
  // frames or sound, with a single position axis. Such a part is read like a
  // language model.
  absl::string_view sequence = {};
  // Why the class's computation is not a rotation; empty if it is a rotation.
  absl::string_view no_rotation = {};
};

namespace {

constexpr Tower kTowers[] = {
#include "towers.inc"
};

// Returns the tower of that model type; null if no such tower is known.
const Tower* FindTower(absl::string_view model_type) {
  return FindRow(kTowers, &Tower::model_types, model_type);
}

// Keys of the parts of a model. Parts may be nested.
constexpr char kVisionKeys[] =
    "thinker_config vlm_config detector_config audio_video_config "
    "vision_config video_config backbone_config encoder_config";
constexpr char kAudioKeys[] =
    "thinker_config audio_config audio_encoder_config asr_config "
    "encoder_config";

// The type of an audio part that names no type, by the type of the whole model.
struct ImpliedPart {
  absl::string_view parents;  // separated by blanks
  absl::string_view type;
};
constexpr ImpliedPart kImpliedAudio[] = {
#include "audio_parts.inc"
};

absl::string_view NameOf(ModelPart part) {
  return part == ModelPart::kAudio ? "audio" : "vision";
}

std::string TypeOf(const JsonObject& config) {
  return config.Text("model_type").value_or("");
}

// Returns 1 / theta^exponent. Base, power and reciprocal are each rounded to
// float32. The power is correctly rounded. torch's power is also correctly
// rounded for the widths and bases of nearly all known towers
// (tests/parity/towers.py).
double Float32Frequency(double theta, float exponent) {
  const auto power = static_cast<float>(
      std::pow(static_cast<long double>(static_cast<float>(theta)),
               static_cast<long double>(exponent)));
  return 1.0F / power;
}

class TowerReader {
 public:
  explicit TowerReader(const TowerPart& part)
      : config_(part.config),
        tower_(*part.tower),
        model_type_(part.model_type),
        warning_(part.warning) {}

  ModelRope Read(Profile profile) {
    Report& report = config_.report();
    ModelRope rope;
    rope.grid = ReadGrid();
    const double theta = ReadTheta();
    const std::int64_t head_dim = ReadHeadDim();
    rope.head_dim = head_dim;
    if (!CheckHeadDim(head_dim)) return rope;
    Assign(theta, head_dim, &rope);
    if (profile != Profile::kHf) {
      report.Warn(RulesOf(profile).project,
                  " is not asked about towers: this is transformers' "
                  "interpretation");
    }
    if (tower_.axes != "hw") {
      report.Assume(
          "axes", tower_.axes == "wh" ? "width, height" : "time, height, width",
          absl::StrCat("order of a position's axes in ", model_type_));
    }
    if (!tower_.warning.empty()) report.Warn(tower_.warning);
    if (!warning_.empty()) report.Warn(warning_);
    WarnOfUnread();
    return rope;
  }

 private:
  TowerGrid ReadGrid() {
    TowerGrid grid = {.axes = GridAxesOf(tower_.axes),
                      .merge_size = tower_.merge,
                      .first = tower_.first,
                      .leading = tower_.leading,
                      .trailing = tower_.trailing,
                      .centers = tower_.centers};
    if (!tower_.merge_key.empty()) {
      grid.merge_size = static_cast<std::int32_t>(
          PositiveInteger(tower_.merge_key, tower_.merge));
    }
    if (tower_.window > 0) {
      grid.window = PositiveInteger("window_size", tower_.window);
    }
    return grid;
  }

  // Returns the value of a key, or `absent` if the key is absent. A value
  // outside of [1, kGreatest] is an error, and the result is 1.
  std::int64_t PositiveInteger(absl::string_view key, std::int64_t absent) {
    const std::int64_t value = config_.Integer(key).value_or(absent);
    // Larger heads (kMaxRotaryDim) and grids are not supported.
    constexpr std::int64_t kGreatest = 1 << 24;
    if (!config_.Has(key) || (value >= 1 && value <= kGreatest)) return value;
    config_.Fail(key, "is ", value, "; it must be 1 to ", kGreatest);
    return 1;
  }

  // Returns the first of `keys` that the file has, or else the last of `keys`.
  absl::string_view KeyOf(absl::string_view keys) const {
    const absl::string_view given = config_.FirstOf(keys);
    return given.empty() ? keys.substr(keys.rfind(' ') + 1) : given;
  }

  // Does the same as PositiveInteger(), and reports the default as an
  // assumption.
  std::int64_t SizeOf(absl::string_view key, std::int64_t absent) {
    if (!config_.Has(key)) Assume(key, absl::StrCat(absent));
    return PositiveInteger(key, absent);
  }

  void Assume(absl::string_view key, std::string value) {
    config_.Assume(key, std::move(value),
                   absl::StrCat("absent; the default of ", model_type_));
  }

  static void WarnOfNull(const JsonObject& object, absl::string_view key) {
    object.Warn(key,
                " is null, and transformers wants a value; read as absent");
  }

  double ReadTheta() {
    JsonObject of_theta = config_;
    const absl::string_view key =
        tower_.dict == TowerDict::kNone
            ? ""
            : config_.FirstOf("rope_scaling rope_parameters");
    if (key == "rope_scaling" && config_.Has("rope_parameters")) {
      config_.Warn("rope_parameters",
                   " is not read: rope_scaling, which is given too, replaces "
                   "it");
    }
    if (!key.empty()) {
      const JsonObject dict = config_.Object(key);
      if (dict.Has("rope_theta")) of_theta = dict;
      if (dict.HasNull("rope_theta")) WarnOfNull(dict, "rope_theta");
      const absl::string_view type_key = TypeKey(dict);
      const std::string type = dict.Text(type_key).value_or("default");
      dict.MarkRead("type");
      // The classes treat "default" as axial.
      if (type != "axial" && type != "default") {
        if (tower_.dict == TowerDict::kAxial) {
          dict.Fail(type_key, "is \"", type, "\"; the class of ", model_type_,
                    " takes axial or default only");
        } else {
          dict.Warn(type_key, " is ", type, ", and the class of ", model_type_,
                    " reads only rope_theta: the frequencies are not scaled");
        }
      }
      if (tower_.frequencies == TowerFrequencies::kOfWidth) {
        partial_ = dict.Number("partial_rotary_factor");
      }
      for (const std::string& unread : dict.Keys()) {
        if (!dict.WasRead(unread)) dict.Warn(unread, " is not read");
      }
    }
    std::optional<double> theta = of_theta.Number("rope_theta");
    if (!theta) {
      if (of_theta.HasNull("rope_theta")) WarnOfNull(of_theta, "rope_theta");
      theta = tower_.theta;
      Assume("rope_theta", NumberText(*theta));
    }
    if (!(*theta > 1 && std::isfinite(static_cast<float>(*theta)))) {
      of_theta.Fail("rope_theta", "is ", NumberText(*theta),
                    "; it must be > 1, and finite as float32");
    }
    return *theta;
  }

  std::int64_t ReadHeadDim() {
    if (tower_.reads_head_dim) {
      if (config_.Has("head_dim")) {
        return PositiveInteger("head_dim", 0);
      }
      if (tower_.head_dim > 0) {
        Assume("head_dim", absl::StrCat(tower_.head_dim));
        return tower_.head_dim;
      }
    }
    const std::int64_t width = SizeOf(KeyOf(tower_.width_keys), tower_.width);
    std::int64_t heads = SizeOf(KeyOf(tower_.heads_keys), tower_.heads);
    if (!tower_.divisor_key.empty()) {
      heads *= SizeOf(tower_.divisor_key, 1);
    }
    width_ = width;
    if (width % heads != 0) {
      config_.Warn(KeyOf(tower_.width_keys), " is ", width,
                   ", and the class of ", model_type_,
                   " fails when it divides this width among ", heads,
                   " heads; heads of ", width / heads, " channels are read");
    }
    return width / heads;
  }

  // True if the class can rotate heads of this width. Reports an error if it
  // cannot.
  bool CheckHeadDim(std::int64_t head_dim) {
    const auto axes = static_cast<std::int64_t>(tower_.axes.size());
    const bool fits = axes == 3 ? head_dim % 2 == 0 && head_dim >= 6
                                : head_dim % 4 == 0 && head_dim >= 4;
    if (fits && head_dim <= kMaxRotaryDim) return true;
    const bool is_given = tower_.reads_head_dim && config_.Has("head_dim");
    config_.Fail(is_given ? "head_dim" : KeyOf(tower_.width_keys),
                 is_given
                     ? absl::StrCat("is ", head_dim)
                     : absl::StrCat("and ", KeyOf(tower_.heads_keys),
                                    " give heads of ", head_dim, " channels"),
                 "; ", model_type_, " needs ",
                 axes == 3 ? "an even number, at least 6" : "a multiple of 4",
                 " up to ", kMaxRotaryDim);
    return false;
  }

  // Returns the frequencies of an axis. `axis` is the axis's index in
  // pair_axes.
  std::vector<double> Frequencies(std::int64_t axis, double theta,
                                  std::int64_t head_dim, ModelRope* rope) {
    switch (tower_.frequencies) {
      case TowerFrequencies::kOfAxis:
        return Float32Frequencies(
            theta,
            tower_.axes.size() == 3 ? 2 * (head_dim / 3 / 2) : head_dim / 2, 0,
            2);
      case TowerFrequencies::kShared:
        return Float32Frequencies(theta, head_dim, 2 * axis, 4);
      case TowerFrequencies::kOfWidth:
        return Float32Frequencies(theta, RotatedWidth(head_dim, rope), 0, 2);
      case TowerFrequencies::kUnitSteps:
        break;
    }
    const double step = 4.0 / static_cast<double>(head_dim);
    std::vector<double> frequencies;
    frequencies.reserve(head_dim / 4);
    for (std::int64_t i = 0; i < head_dim / 4; ++i) {
      frequencies.push_back(Float32Frequency(
          theta, static_cast<float>(static_cast<double>(i) * step)));
    }
    return frequencies;
  }

  // Returns int(head_dim * partial_rotary_factor), which must be half of the
  // model's width.
  std::int64_t RotatedWidth(std::int64_t head_dim, ModelRope* rope) {
    if (!partial_) partial_ = config_.Number("partial_rotary_factor");
    // The class's default, which fits the class's default width and heads.
    constexpr double kPartial = 4;
    const auto width =
        WholePart(static_cast<double>(head_dim) * partial_.value_or(kPartial));
    if (2 * width != width_ || width_ % 4 != 0) {
      config_.Fail("partial_rotary_factor", "gives ", width,
                   " channels for each axis; they must be half "
                   "of ",
                   KeyOf(tower_.width_keys), ", which is ", width_);
      return 2;
    }
    rope->head_dim = width_;
    return width;
  }

  void Assign(double theta, std::int64_t head_dim, ModelRope* rope) {
    std::vector<std::vector<double>> frequencies;
    RotaryAxes axes;
    axes.assignment = tower_.alternating ? AxisAssignment::kInterleaved
                                         : AxisAssignment::kPerAxis;
    axes.halves_per_axis = tower_.halves_per_axis;
    ExplicitFrequencies given;
    for (std::size_t a = 0; a < tower_.axes.size(); ++a) {
      frequencies.push_back(
          Frequencies(static_cast<std::int64_t>(a), theta, head_dim, rope));
      axes.sections.push_back(static_cast<std::int32_t>(frequencies[a].size()));
      if (tower_.pair_axes != tower_.axes) {
        axes.position_axes.push_back(
            static_cast<std::int32_t>(tower_.axes.find(tower_.pair_axes[a])));
      }
      if (!tower_.alternating) {
        given.values.insert(given.values.end(), frequencies[a].begin(),
                            frequencies[a].end());
      }
    }
    if (tower_.alternating) {
      for (std::size_t i = 0; i < frequencies[0].size(); ++i) {
        for (const std::vector<double>& of_axis : frequencies) {
          given.values.push_back(of_axis[i]);
        }
      }
    }
    rope->spec.rotary_dim = static_cast<std::int32_t>(2 * given.values.size());
    rope->spec.pairing = tower_.pairing;
    rope->spec.axes = std::move(axes);
    rope->spec.scaling = std::move(given);
  }

  void WarnOfUnread() {
    for (const std::string& key : config_.Keys()) {
      if (config_.At(key).is_null() && (IsAmong(key, tower_.width_keys) ||
                                        IsAmong(key, tower_.heads_keys))) {
        WarnOfNull(config_, key);
      }
      const bool rotary = absl::StartsWith(key, "rope_") ||
                          absl::StartsWith(key, "rotary_") ||
                          key == "partial_rotary_factor";
      if (rotary && !config_.WasRead(key)) {
        config_.Warn(key, " is not read: ", Shortened(config_.At(key)),
                     " has no part in this tower's rotation");
      }
    }
  }

  const JsonObject config_;
  const Tower& tower_;
  const std::string model_type_;
  const std::string warning_;
  std::optional<double> partial_;
  std::int64_t width_ = 0;  // the model's width, if head_dim follows from it
};

}  // namespace

bool IsTowerConfig(const JsonObject& root) {
  const json& type = root.At("model_type");
  const Tower* const tower =
      type.is_string() ? FindTower(type.get<std::string>()) : nullptr;
  return tower != nullptr && tower->sequence.empty();
}

TowerPart FindTowerPart(const JsonObject& root, ModelPart part) {
  const std::string whole = TypeOf(root);
  TowerPart found{root, whole};
  if (part == ModelPart::kText) {
    root.report().Refuse(FieldInvalid(
        "part", absl::StrCat("text, but the configuration is that of "
                             "a vision tower, ",
                             whole, "; leave it unset, or vision")));
    return found;
  }
  // The type of the innermost surrounding configuration that names a type.
  std::string parent;
  int depth = 0;
  for (bool descends = part != ModelPart::kUnspecified; descends;) {
    descends = false;
    for (const absl::string_view key : absl::StrSplit(
             part == ModelPart::kAudio ? kAudioKeys : kVisionKeys, ' ')) {
      if (found.config.At(key).is_null()) continue;
      if (!found.model_type.empty()) parent = found.model_type;
      found.config = found.config.Object(key);
      found.model_type = TypeOf(found.config);
      const ImpliedPart* const implied =
          FindRow(kImpliedAudio, &ImpliedPart::parents, parent);
      if (found.model_type.empty() && part == ModelPart::kAudio &&
          implied != nullptr) {
        found.model_type = std::string(implied->type);
      }
      descends = true;
      ++depth;
      break;
    }
  }
  const Tower* const named = FindTower(found.model_type);
  if (named != nullptr && !named->no_rotation.empty()) {
    found.config.Fail("model_type", found.model_type, " ", named->no_rotation);
    return found;
  }
  const auto find = [&](const std::string& type) {
    const Tower* const tower = FindTower(type);
    if (tower == nullptr) return false;
    const bool is_sequence = !tower->sequence.empty();
    found.tower = is_sequence ? nullptr : tower;
    return is_sequence ? IsAmong(NameOf(part), tower->sequence)
                       : part != ModelPart::kAudio;
  };
  bool known = find(found.model_type);
  if (!known && depth > 0 && part != ModelPart::kAudio) {
    // In published files a vision_config may also have the type of the whole
    // model.
    found.tower = FindRow(kTowers, &Tower::parents, parent);
    if (found.tower == nullptr && found.model_type.empty()) {
      found.tower = FindRow(kTowers, &Tower::default_of, parent);
    }
    known = found.tower != nullptr;
    if (known && !found.model_type.empty() && found.model_type != parent) {
      found.warning = absl::StrCat(
          found.config.Path("model_type"), " is \"", found.model_type,
          "\", and transformers' class of model_type ", parent,
          " reads its own tower anyway; it is read the same way here");
    }
  }
  if (!known && find(whole)) {
    // The whole file is a tower. The vision_config inside does not rotate (SAM
    // 2's memory attention).
    found.config = root;
    found.model_type = whole;
    known = true;
  }
  if (known) {
    if (found.model_type.empty()) {
      found.model_type = std::string(found.tower->model_types.substr(
          0, found.tower->model_types.find(' ')));
    }
    return found;
  }
  const absl::string_view name = NameOf(part);
  const std::string type =
      found.model_type.empty() ? "(absent)" : found.model_type;
  if (depth == 0) {
    root.report().Refuse(FieldInvalid(
        "part",
        absl::StrCat(name, ", but the configuration",
                     whole.empty() ? "" : absl::StrCat(", of ", whole, ","),
                     " has no ", name,
                     "_config; give a configuration with one, or no part")));
  } else {
    found.config.Fail("model_type", type, ": this ", name,
                      " tower has no rotary encoding that is known here; if it "
                      "rotates, send its frequencies as a spec");
  }
  return found;
}

ModelRope ReadTower(const TowerPart& part, Profile profile) {
  return TowerReader(part).Read(profile);
}

std::vector<GridAxis> GridAxesOf(absl::string_view letters) {
  std::vector<GridAxis> axes;
  for (const char letter : letters) {
    axes.push_back(letter == 't'   ? GridAxis::kTime
                   : letter == 'h' ? GridAxis::kHeight
                   : letter == 'l' ? GridAxis::kStill
                                   : GridAxis::kWidth);
  }
  return axes;
}

std::vector<double> Float32Frequencies(double theta, std::int64_t n,
                                       std::int64_t first, std::int64_t step) {
  std::vector<double> frequencies;
  for (std::int64_t i = first; i < n; i += step) {
    frequencies.push_back(
        Float32Frequency(theta, static_cast<float>(i) / static_cast<float>(n)));
  }
  return frequencies;
}

}  // namespace posenc::core::interpretation
