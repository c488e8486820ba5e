// Reads the scaling of a rope dict, as one project does.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/interpretation/rope_config.h"

namespace posenc::core::interpretation {

// The key that gives the dict's type: rope_type, or `type`, its older name, in
// a dict that has no other.
absl::string_view TypeKey(const JsonObject& dict);

// The type of scaling, "default", "yarn", ..., with aliases resolved.
std::string RopeType(const RopeDict& from);

// `type` is the older name of rope_type, and files carry both. Two that differ
// mean one thing in two pairs that were published; elsewhere readers take one
// of them, in silence, or refuse the file as vLLM does.
void CheckTypesAgree(const RopeDict& from);

// True if a dynamic dict's alpha scales the base once, for every length, as
// Hunyuan's does.
bool TurnsByAlpha(const RopeDict& from);

// The dict's factor, without which its type does not scale in most projects.
double RequiredFactor(const RopeDict& from);

// Sets spec.scaling, what the scaling implies for scores, and how a sequence's
// length counts (LengthUse). The spec's base, width and pairing are read
// before.
void ReadScaling(const RopeDict& from, ModelRope* rope);

// Sets spec.scaling and the softmax multiplier by YaRN's parameters, about
// whose attention factor and ramp the projects disagree most.
void ReadYarn(const RopeDict& from, ModelRope* rope);

// g(s, m) of the YaRN paper (arXiv:2309.00071): 0.1 m ln s + 1, or 1 for s
// <= 1. Factor on cos and sin, and squared on scores.
long double YarnMscale(double factor, double mscale);

// max_position_embeddings under one of its names.
std::optional<std::int64_t> MaxPositions(const RopeDict& from);

// original_max_position_embeddings, or else max_position_embeddings; 0 if
// neither is given.
std::int64_t OriginalOrMaxPositionEmbeddings(const RopeDict& from);

// max_position_embeddings, or the class's, which is an assumption. If both are
// missing, this is an error that says why it is needed, and 0.
std::int64_t RequiredMaximum(const RopeDict& from, absl::string_view why);

// original_max_position_embeddings. `otherwise` says what replaces an absent
// one: ProfileRules::yarn_original or llama3_original.
std::int64_t ReadOriginalMaxPositionEmbeddings(const RopeDict& from,
                                               std::int64_t otherwise);

// Warns if the lengths imply another factor than the one given.
void WarnOfFactor(const RopeDict& from, double factor, std::int64_t original);

// Replaces base and scaling by the frequencies that they gave, which no length
// changes any more.
void WriteOutFrequencies(const std::vector<double>& inv_freq, RopeSpec* spec);

}  // namespace posenc::core::interpretation
