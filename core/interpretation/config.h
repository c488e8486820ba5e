// Reads the rotary encoding from a model's config.json.
//
// The result is the encoding that the profile's project reads from that file
// (profile.h). If transformers is known to be wrong, PROFILE_HF differs from
// transformers and gives the encoding that the model was trained with. Formats
// of other projects are recognised (native_config.h).

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/interpretation/classes/reading_rules.h"
#include "core/interpretation/report.h"
#include "core/interpretation/source.h"
#include "core/positions/vision_positions.h"
#include "core/rope/frequencies.h"
#include "core/rope/spec.h"

namespace posenc::core::interpretation {

// A configuration's rotary encoding, before frequencies are computed.
struct ModelRope {
  RopeSpec spec;  // has rotary_dim and pairing, or nope
  std::int64_t head_dim = 0;
  double softmax_scale_multiplier = 1;
  std::optional<QueryScale> query_scale;
  // The value of the key of this name, or else of max_position_embeddings; 0 if
  // neither is known.
  std::int64_t original_max_position_embeddings = 0;
  // Set if frequencies depend on a length and are chosen only once, by the
  // longest sequence that a server accepts. That sequence has the caller's
  // length, or else `length`. If `length_reason` is empty, `length` counts even
  // if the caller gives a length. If `length` is not set, each sequence has its
  // own frequencies.
  std::optional<std::int64_t> length;
  std::string length_reason;
  // How a vision tower numbers the patches of a grid.
  std::optional<TowerGrid> grid;
  Report report;  // its status is OK
};

// Selects what is read: the reader, the layer and the part. At most one of
// layer_type and layer_index is set.
struct Question {
  ProfileVersion reader;
  std::optional<std::string> layer_type;
  std::optional<std::int32_t> layer_index;
  ModelPart part = ModelPart::kUnspecified;
};

// Returns kModelConfigInvalid of field "config_json" (INVALID_ARGUMENT, with
// metadata "key") for a bad text. A text is bad if it is not JSON, a known key
// has the wrong type, a needed key is missing, the rope type is unknown, or the
// profile's project refuses a value. Returns FieldRequired of "layer_type" or
// "layer_index" if layers differ and the question chooses no layer.
absl::StatusOr<ModelRope> ReadModelConfig(absl::string_view config_json,
                                          const Question& question);

// Returns the grid of the vision tower that a source describes. Returns the
// errors of ResolveSource. Returns FieldInvalid of "spec", "preset" or
// "config_json" if the source is not a vision tower whose patches lie on a
// grid.
absl::StatusOr<TowerGrid> ResolveTowerGrid(const RopeSource& source);

}  // namespace posenc::core::interpretation
