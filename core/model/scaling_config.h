// Reads the scaling of a rope dict, as one project does.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/model/rope_config.h"

namespace posenc::core {

// "default", "yarn", ...: aliases resolved.
std::string RopeType(const RopeDict& from);

// Sets spec.scaling, what the scaling implies for scores, and how a length
// counts. The spec's base, width and pairing are read already.
void ReadScaling(const RopeDict& from, const std::string& type,
                 ModelRope* rope);

// max_position_embeddings under one of its names.
std::optional<std::int64_t> MaxPositions(const JsonObject& config);

// original_max_position_embeddings, or else the maximum; 0 where neither is
// given.
std::int64_t TrainedLength(const RopeDict& from);

// The maximum, or the error that it is missing and why it is needed, and 0.
std::int64_t RequiredMaximum(const RopeDict& from, absl::string_view why);

// otherwise: ProfileRules::yarn_original or llama3_original.
std::int64_t OriginalLength(const RopeDict& from, const std::string& type,
                            std::int64_t otherwise, ModelRope* rope);

// Warns where the lengths imply another factor than the one given.
void WarnOfFactor(const RopeDict& from, double factor, std::int64_t original,
                  ModelRope* rope);

// The spec with its frequencies written out, which no length changes any more.
void WriteOutFrequencies(const std::vector<double>& inv_freq, RopeSpec* spec);

void Assume(std::string field, std::string value, std::string reason,
            ModelRope* rope);

// "absent; transformers' default"
std::string DefaultOf(const ProfileRules& rules);

}  // namespace posenc::core
