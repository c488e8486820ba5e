// The scalings of a ladder of frequencies: rope.proto has the formulas.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/rope/frequencies.h"

namespace posenc::core {

// FieldInvalid unless value is finite and > 0.
absl::Status CheckPositive(absl::string_view field, double value);

// Checks rope->spec.scaling for spec.rotary_dim, except explicit frequencies,
// and fills in its defaults; says so in assumptions, and warns of factors < 1.
absl::Status CompleteScaling(ResolvedRope* rope);

// The length that the scaling is evaluated at; 0 where it has none.
absl::StatusOr<std::int64_t> ScalingLength(
    std::optional<std::int64_t> sequence_length, MissingLength missing_length,
    ResolvedRope* rope);

// Appends the n scaled frequencies of a ladder of base theta. first_pair: pairs
// of the ladders before it (factor lists run over all of them).
absl::Status AppendLadder(const RopeSpec& spec, double theta, std::int32_t n,
                          std::int32_t first_pair, std::int64_t length,
                          std::vector<double>* inv_freq);

// First and last pair of YaRN's ramp, not yet rounded to whole ones where the
// scaling does not truncate; defaults are filled in.
struct RampBounds {
  double low = 0, high = 0;
};
RampBounds YarnRampBounds(const YarnScaling& yarn, double theta,
                          std::int32_t pairs);

// The original maximum that the scaling names; 0 where it names none.
std::int64_t OriginalMaximum(const RopeSpec& spec);

// The amplitude that the scaling implies.
absl::StatusOr<double> ScalingAmplitude(const RopeSpec& spec,
                                        std::int64_t length);

}  // namespace posenc::core
