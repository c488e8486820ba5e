// Computes the frequencies and attention factor of a rotary specification.
//
// The scaling messages of posenc.v1 rope.proto have the formulas. Every
// frequency and attention factor is evaluated from the formula with twice the
// bits of float64 (angle/wide.h) and rounded once. All later code uses this
// float64 number as the exact frequency: ResolveRope returns this number, and
// exact tables reduce position * frequency without error.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/rope/spec.h"

namespace posenc::core {

// A default value that was filled in, and the reason.
struct Assumption {
  std::string field;   // "rope_scaling.beta_fast"
  std::string value;   // "32"
  std::string reason;  // "absent; transformers' default"
};

// Decides what happens if a scaling depends on the length, and no length is
// given.
enum class MissingLength {
  kError,           // FieldRequired("sequence_length")
  kAssumeOriginal,  // take original_max_position_embeddings and note this
};

// A rotary encoding that is ready for use.
struct ResolvedRope {
  RopeSpec spec;              // complete: every defaulted field is filled in
  std::int64_t head_dim = 0;  // 0: not known, and not needed
  // The frequencies after scaling, in radians per position. The shape is
  // [max(heads, 1), frequency_axes, pairs]. The list is empty for NoPE.
  std::vector<double> inv_freq;
  std::int32_t heads = 0;                  // 0: the same for every head
  std::int32_t frequency_axes = 1;         // > 1: angles are sums over the axes
  std::vector<std::int32_t> axis_of_pair;  // [pairs]; empty: axis 0
  double attention_factor = 1;
  double softmax_scale_multiplier = 1;
  std::optional<QueryScale> query_scale;
  // The number of positions in training, before scaling; 0 if not known.
  std::int64_t original_max_position_embeddings = 0;
  std::vector<Assumption> assumptions;
  std::vector<std::string> warnings;

  std::int32_t pairs() const { return spec.rotary_dim / 2; }
  // The number of position axes of a token.
  std::int32_t axes() const;
  // True if each axis needs its own positions, given as ids (see
  // ExpandPositions).
  bool needs_ids() const;
};

// Resolves `spec`. If head_dim is 0 (not known), spec.rotary_dim is required.
// Errors name fields relative to RopeSpec, such as "yarn.factor"; the length
// has the name "sequence_length". Returns FieldInvalid for an odd rotary_dim,
// rotary_dim > head_dim, rope_theta <= 1, factors <= 0 or not finite, wrong
// numbers of factors or sections, and exclusive fields that are set together.
// Returns FieldRequired for a missing pairing, a missing field of a scaling or
// of axes, a missing rotary_dim if head_dim is 0, and a missing
// sequence_length.
absl::StatusOr<ResolvedRope> ResolveSpec(
    const RopeSpec& spec, std::int64_t head_dim,
    std::optional<std::int64_t> sequence_length, MissingLength missing_length);

// Largest valid rotary_dim.
inline constexpr std::int32_t kMaxRotaryDim = 65536;

}  // namespace posenc::core
