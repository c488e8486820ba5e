// Reads the rotary encoding out of a model's config.json.
//
// Semantics: PROFILE_HF, what transformers 5 does with the same file (where it
// is known to be defective, what the model means; see encodings in README).
// Old spelling (rope_theta, rope_scaling) and new (rope_parameters, also nested
// by layer type), text_config nesting, per-family keys (rotary_pct,
// rotary_emb_base, rotary_dim, qk_rope_head_dim, ...).

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/model/source.h"
#include "core/rope/frequencies.h"
#include "core/rope/spec.h"

namespace posenc::core {

// What a configuration says, before frequencies are computed.
struct ModelRope {
  RopeSpec spec;  // rotary_dim and pairing set; nope for a layer without
  std::int64_t head_dim = 0;
  double softmax_scale_multiplier = 1;
  std::optional<QueryScale> query_scale;
  std::vector<Assumption> assumptions;
  std::vector<std::string> warnings;
};

// Errors: INVALID_ARGUMENT kModelConfigInvalid, field "config_json", metadata
// key: not JSON, a known key of the wrong type, a missing key, an unknown rope
// type; FieldRequired("layer_type") where layers differ and none was chosen;
// UNIMPLEMENTED for a profile that is not built.
absl::StatusOr<ModelRope> ReadModelConfig(
    absl::string_view config_json, Profile profile,
    const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index);

}  // namespace posenc::core
