// The scalings of geometric frequencies base^(-2i/d); rope.proto has the
// formulas.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/angle/wide.h"
#include "core/rope/frequencies.h"

namespace posenc::core {

// Returns FieldInvalid unless value is finite and > 0.
absl::Status CheckPositive(absl::string_view field, double value);

// Adds to rope->assumptions that an unset field has this value.
void Assume(absl::string_view field, absl::string_view value,
            absl::string_view reason, ResolvedRope* rope);

// Sets an unset field to its default, and calls Assume().
void Default(absl::string_view field, double value, absl::string_view reason,
             std::optional<double>* target, ResolvedRope* rope);

// Checks rope->spec.scaling, except explicit frequencies. Needs rotary_dim.
// Fills in defaults, adds them to the assumptions, and warns of factors < 1.
absl::Status CompleteScaling(ResolvedRope* rope);

// Returns the length for the scaling's evaluation; 0 if the scaling needs no
// length.
absl::StatusOr<std::int64_t> ScalingLength(
    std::optional<std::int64_t> sequence_length, MissingLength missing_length,
    ResolvedRope* rope);

// Appends the scaled frequencies of n pairs with the base theta. If axes have
// their own bases, first_pair counts the pairs of earlier axes, because lists
// of factors cover the pairs of all axes.
absl::Status AppendGeometricFrequencies(const RopeSpec& spec, double theta,
                                        std::int32_t n, std::int32_t first_pair,
                                        std::int64_t length,
                                        std::vector<double>* inv_freq);

// Returns g(factor, mscale) of the YaRN paper (arXiv:2309.00071): 0.1 mscale
// ln(factor) + 1, or 1 for factors up to 1. Longer contexts flatten the
// softmax, and larger logits sharpen it again. cos and sin are multiplied by
// this factor, and scores therefore by its square.
Wide YarnMscale(double factor, double mscale);

// First and last pair of YaRN's ramp; whole numbers unless `truncate` is false.
// Unset betas have their defaults.
struct RampBounds {
  double low = 0, high = 0;
};
RampBounds YarnRampBounds(const YarnScaling& yarn, double theta,
                          std::int32_t pairs);

// Returns the original maximum length that the scaling contains; 0 if the
// scaling has no such field.
std::int64_t OriginalMaxPositionEmbeddings(const RopeSpec& spec);

// Returns the attention factor that the scaling implies.
absl::StatusOr<double> ScalingAttentionFactor(const RopeSpec& spec,
                                              std::int64_t length);

}  // namespace posenc::core
