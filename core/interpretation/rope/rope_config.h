// Reads one dict of rotary parameters: a flat rope_scaling or rope_parameters,
// or one layer type's entry of a nested one.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/interpretation/classes/class_defaults.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/provenance.h"

namespace posenc::core::interpretation {

inline constexpr absl::string_view kOriginal =
    "original_max_position_embeddings";

struct RopeDict {
  JsonObject config;  // the language model's part
  JsonObject dict;
  const Family& family;
  const ProfileRules& rules;
  std::string model_type;
  const LayerKind* kind = nullptr;  // null: layers do not differ by theta
  bool nested = false;
  bool scales = true;  // false: the class takes no scaling, whatever dict says
  bool is_unscaled_layer = false;           // rope_scaling_layers leaves it out
  bool from_class = false;                  // the dict is the class's own
  std::optional<double> layer_theta = {};   // of layer_rope_theta
  const ClassDefaults* defaults = nullptr;  // null unless by_class()
  Value head = {};        // width of these layers' heads; 0: not given
  std::string type = {};  // RopeType() of these layers; "default": no scaling

  // Returns the reader's row with this rule for the model; null if no row
  // applies.
  const ReadingRow* Row(ReadingRule rule) const {
    return FindReadingRow(rules, model_type, rule);
  }
  bool is_hf() const { return rules.profile == Profile::kHf; }
  bool by_class() const { return ReadsByClass(rules); }
  // The reader's class, for messages.
  std::string Class() const { return ClassOf(model_type, rules.project); }
  Report& report() const { return config.report(); }
};

// Warns of nulls at which transformers fails, and of an entry without
// rope_theta in a class that has no default for it.
void WarnOfNulls(const RopeDict& from);

// Warns of numbers that transformers accepts but cannot compute with.
void WarnOfRange(const RopeDict& from, const RopeSpec& spec);

// Adds to `rope` what the dict says.
void ReadRopeDict(RopeDict from, ModelRope* rope);

// Returns the head width in layers of that type; 0 and an error if the
// configuration gives no width.
Value HeadDim(const JsonObject& config, const Family& family,
              absl::string_view layer_type);

// Returns how many channels of from.head rotate; 0 and an error if no channel
// can. The result is odd only if transformers computes frequencies for an odd
// number.
std::int64_t ReadWidth(const RopeDict& from);

// PartialFactor: the rotated share of a head's channels, from the file.
// DefaultShare: the class's default.
std::optional<Value> PartialFactor(const RopeDict& from);
double DefaultShare(const RopeDict& from);

// Base of the frequencies.
double ReadTheta(const RopeDict& from);

// Sets spec->axes by the dict's sections, or else by the class's. Needs
// rotary_dim. Impossible sections are an error.
void ReadAxes(const RopeDict& from, RopeSpec* spec);

// Returns the key of the dict's type: rope_type, or its older name `type` in a
// dict without rope_type.
absl::string_view TypeKey(const JsonObject& dict);

// The type of scaling, "default", "yarn", ..., with aliases resolved.
std::string RopeType(const RopeDict& from);

// True if a dynamic dict's alpha scales the base once, for every length, as
// Hunyuan's does.
bool TurnsByAlpha(const RopeDict& from);

// Returns the dict's factor. In most projects its type does not scale without a
// factor.
double RequiredFactor(const RopeDict& from);

// Sets spec.scaling, the scaling's effect on scores, and how the length of a
// sequence counts (LengthUse). Needs the spec's base, width and pairing.
void ReadScaling(const RopeDict& from, ModelRope* rope);

// Does the same for YaRN. The projects disagree most about its attention factor
// and ramp.
void ReadYarn(const RopeDict& from, ModelRope* rope);

// max_position_embeddings under one of its names.
std::optional<std::int64_t> MaxPositions(const RopeDict& from);

// original_max_position_embeddings, or else max_position_embeddings; 0 if
// neither is given.
std::int64_t OriginalOrMaxPositionEmbeddings(const RopeDict& from);

// Returns max_position_embeddings, or the class's default, which is an
// assumption. If both are missing, reports an error with `why` it is needed,
// and returns 0.
std::int64_t RequiredMaximum(const RopeDict& from, absl::string_view why);

// original_max_position_embeddings. `otherwise` says what replaces an absent
// one: ProfileRules::yarn_original or llama3_original.
std::int64_t ReadOriginalMaxPositionEmbeddings(const RopeDict& from,
                                               std::int64_t otherwise);

// Warns if the lengths imply another factor than the one given.
void WarnOfFactor(const RopeDict& from, double factor, std::int64_t original);

// Replaces base and scaling by the frequencies that they gave, so that they no
// longer depend on a length.
void WriteOutFrequencies(const std::vector<double>& inv_freq, RopeSpec* spec);

}  // namespace posenc::core::interpretation
