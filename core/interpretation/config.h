// Reads the rotary encoding from a model's config.json.
//
// The result is the encoding that the profile's project reads from the same
// file (profile.h). Where transformers is known to be wrong, PROFILE_HF differs
// from it and gives what the model was trained with. Formats of other projects
// are recognised (native_config.h).

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/interpretation/classes/reading_rules.h"
#include "core/interpretation/report.h"
#include "core/interpretation/source.h"
#include "core/rope/frequencies.h"
#include "core/rope/spec.h"

namespace posenc::core::interpretation {

// How a length selects the frequencies, if they depend on a length.
enum class LengthUse {
  kEach,   // each sequence has its own frequencies
  kOnce,   // one choice, by the longest sequence that a server accepts:
           // the length given, or else ModelRope::length
  kFixed,  // one choice, by ModelRope::length, whatever length is given
};

// A configuration's rotary encoding, before frequencies are computed.
struct ModelRope {
  RopeSpec spec;  // rotary_dim and pairing set; nope for a layer without
  std::int64_t head_dim = 0;
  double softmax_scale_multiplier = 1;
  std::optional<QueryScale> query_scale;
  // original_max_position_embeddings, or max_position_embeddings; 0: not known.
  std::int64_t original_max_position_embeddings = 0;
  LengthUse length_use = LengthUse::kEach;
  std::int64_t length = 0;
  std::string length_reason;
  Report report;  // without an error
};

// The reading that a call asks for. At most one of layer_type and layer_index
// is given.
struct Question {
  ProfileVersion reader;
  std::optional<std::string> layer_type;
  std::optional<std::int32_t> layer_index;
  ModelPart part = ModelPart::kUnspecified;
};

// Errors: INVALID_ARGUMENT kModelConfigInvalid, field "config_json", metadata
// key: not JSON, a known key of the wrong type, a missing key, an unknown rope
// type; FieldRequired("layer_type") if layers differ and none was chosen;
// a value that the profile's project refuses; a key that it needs and the file
// lacks.
absl::StatusOr<ModelRope> ReadModelConfig(absl::string_view config_json,
                                          const Question& question);

}  // namespace posenc::core::interpretation
