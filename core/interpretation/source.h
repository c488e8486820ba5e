// The source of a rotary encoding: a complete spec, a preset's name, or a
// model's own configuration.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "core/rope/frequencies.h"
#include "core/rope/prepared_rope.h"
#include "core/rope/spec.h"

namespace posenc::core::interpretation {

// posenc.v1.Profile has the same numbers.
enum class Profile {
  kHf = 1,
  kVllm = 2,
  kLlamaCpp = 3,
  kGptOss = 4,
  kDeepseek = 5,
  kMistral = 6,
  kMlx = 7,
  // Only doctor uses these profiles. posenc.v1.Profile does not have them.
  kSglang = -1,
  kExllamav3 = -2,
  kTensorrtLlm = -3,
  kOnnxruntimeGenai = -4,
  kCandle = -5,
  kMistralRs = -6,
  kOllama = -7,
};

// posenc.v1.ModelPart has the same numbers. kUnspecified: text, or the tower if
// the whole configuration describes a tower. kIndexer: the small attention
// module that chooses tokens for sparse attention.
enum class ModelPart {
  kUnspecified = 0,
  kText = 1,
  kVision = 2,
  kAudio = 3,
  kIndexer = 4
};

struct PresetName {
  std::string name;
};
struct ConfigJson {
  std::string text;
};

struct RopeSource {
  // monostate: no source is given, which is an error.
  std::variant<std::monostate, RopeSpec, PresetName, ConfigJson> source;
  Profile profile = Profile::kHf;
  // Version of the profile's project; empty: the newest known version
  // (reading_rules.h).
  std::string profile_version = {};
  ModelPart part = ModelPart::kUnspecified;
  // At most one of layer_type and layer_index is set.
  std::optional<std::string> layer_type;
  std::optional<std::int32_t> layer_index;
  std::optional<std::int64_t> sequence_length;
  // Width of the widest heads that are rotated. 0: the configuration's width,
  // or any width for a spec.
  std::int64_t head_dim = 0;
};

// Returns the encoding of the source. `head_dim` is the width of the tensor's
// heads. If `head_dim` is 0, there is no tensor, and the source's width is
// used. Returns FieldInvalid of "head_dim" if the tensor's heads are wider than
// the source's heads. Other errors are NOT_FOUND kPresetUnknown, and
// kModelConfigInvalid with metadata "key". Field paths are relative to
// RopeSource, for example "spec.yarn.factor", "preset", "config_json",
// "profile_version", "layer_type", "sequence_length".
absl::StatusOr<ResolvedRope> ResolveSource(const RopeSource& source,
                                           std::int64_t head_dim,
                                           MissingLength missing_length);

// Returns a function that resolves `source` on each call, for the head_dim of
// the call and with MissingLength::kError.
RopeLookup LookupOf(RopeSource source);
// Does the same as LookupOf(RopeSource) for a spec.
RopeLookup LookupOf(RopeSpec spec);

}  // namespace posenc::core::interpretation
