// Reads one dict of rotary parameters: a flat rope_scaling or rope_parameters,
// or the entry of one layer type in a nested dict.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/interpretation/classes/layers.h"
#include "core/interpretation/config.h"
#include "core/interpretation/provenance.h"

namespace posenc::core::interpretation {

inline constexpr absl::string_view kOriginal =
    "original_max_position_embeddings";

struct RopeDict : Model {
  JsonObject dict;
  const LayerKind* kind = nullptr;  // null: layers do not differ by theta
  bool nested = false;
  bool scales = true;  // false: the class does not scale, whatever `dict` says
  bool is_unscaled_layer = false;          // not in rope_scaling_layers
  bool from_class = false;                 // `dict` is the class's default
  std::optional<double> layer_theta = {};  // from layer_rope_theta
  Value head = {};        // width of these layers' heads; 0: not given
  std::string type = {};  // RopeType() of these layers; "default": no scaling
};

// Warns of nulls at which transformers fails, and of an entry without
// rope_theta in a class that has no default for it.
void WarnOfNulls(const RopeDict& from);

// Warns of numbers that transformers accepts but cannot compute with.
void WarnOfRange(const RopeDict& from, const RopeSpec& spec);

// Warns of a rope type with which the reader's class fails.
void WarnOfType(const RopeDict& from);

void ReadRopeDict(RopeDict from, ModelRope* rope);

// Returns the width of heads in layers of that type. If the configuration gives
// no width, reports an error and returns 0.
Value HeadDim(const Model& model, absl::string_view layer_type);

// Returns how many channels of from.head rotate. If this number of channels
// cannot rotate, reports an error and returns 0. The result is odd only if
// transformers also accepts that odd number of channels.
std::int64_t ReadWidth(const RopeDict& from);

// PartialFactor() returns the rotated share of a head's channels that the file
// gives, and DefaultShare() the class's default share.
std::optional<Value> PartialFactor(const RopeDict& from);
double DefaultShare(const RopeDict& from);

double ReadTheta(const RopeDict& from);

// Sets spec->axes by the dict's sections, or else by the class's sections.
// spec->rotary_dim must be set. Invalid sections are an error.
void ReadAxes(const RopeDict& from, RopeSpec* spec);

// Returns the key of the dict's type: rope_type, or its older name `type` in a
// dict without rope_type.
absl::string_view TypeKey(const JsonObject& dict);

// Returns the type of scaling ("default", "yarn", ...). Aliases are resolved.
std::string RopeType(const RopeDict& from);

// True if the dict has the type "dynamic", and its alpha scales the base
// equally for every length, as in Hunyuan.
bool ScalesBaseByAlpha(const RopeDict& from);

// Returns the dict's factor. An absent factor is an error, except in projects
// with a default (kDefaultFactor).
double RequiredFactor(const RopeDict& from);

// Sets spec.scaling, the scaling's effect on scores, and the length that
// selects the frequencies (ModelRope::length). The spec's base, width and
// pairing must be set.
void ReadScaling(const RopeDict& from, ModelRope* rope);

// Does the same as ReadScaling() for YaRN. Projects differ most in the
// attention factor and the ramp of YaRN.
void ReadYarn(const RopeDict& from, ModelRope* rope);

// Returns max_position_embeddings, which some files give under another name.
std::optional<std::int64_t> MaxPositions(const RopeDict& from);

// Returns original_max_position_embeddings, or else max_position_embeddings; 0
// if neither is given.
std::int64_t OriginalOrMaxPositionEmbeddings(const RopeDict& from);

// Returns max_position_embeddings, or else the class's default, which is
// reported as an assumption. If both are missing, reports an error and returns
// 0. `why` tells why the length is needed.
std::int64_t RequiredMaximum(const RopeDict& from, absl::string_view why);

// Returns original_max_position_embeddings. `otherwise` is
// ProfileRules::yarn_original or llama3_original, and says what replaces an
// absent value.
std::int64_t ReadOriginalMaxPositionEmbeddings(const RopeDict& from,
                                               std::int64_t otherwise);

// Warns if the configuration's lengths imply a factor other than `factor`.
void WarnOfFactor(const RopeDict& from, double factor, std::int64_t original);

// Replaces base and scaling by explicit frequencies, which do not depend on a
// length.
void WriteOutFrequencies(const std::vector<double>& inv_freq, RopeSpec* spec);

}  // namespace posenc::core::interpretation
