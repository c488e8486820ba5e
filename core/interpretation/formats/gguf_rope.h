// The rotary encoding of a GGUF file, read from its keys and tensors as
// llama.cpp does.
//
//   angle of pair i at position p: p base^(-2i/d) / f_i, then linear or YaRN
//
// f is rope_freqs.weight if the file has that tensor. In a file without
// rope_freqs.weight, f is rope_factors_long.weight for contexts longer than the
// original length, and rope_factors_short.weight for other contexts. Without
// these tensors, f is 1. Linear scaling divides a frequency w by the factor.
// YaRN mixes w and w / factor by a ramp that ends at whole pairs. YaRN's
// amplitude is attn_factor * g(s, 1) / g(s, m), where s is the factor, m is
// yarn_log_multiplier and g(s, m) = 1 + 0.1 m ln s. For deepseek2, whose file
// stores 0.1 m, the amplitude is attn_factor.
//
// Source: llama.cpp (src/llama-model.cpp, src/llama-arch.cpp, ggml's
// rope_yarn), read in 2026.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/interpretation/formats/gguf_file.h"
#include "core/rope/frequencies.h"

namespace posenc::core::interpretation {

// How an architecture pairs the rows of a head.
enum class GgufPairing {
  kUnknown,              // not listed in the llama.cpp version that was read
  kNone,                 // the architecture does not rotate
  kInterleaved,          // "norm"
  kHalfSplit,            // "neox"
  kSections,             // "mrope": half-split, several axes
  kInterleavedSections,  // "imrope"
};

GgufPairing PairingOf(const std::string& architecture, bool has_sections);

// A key whose number has another type than the one that llama.cpp reads.
struct MistypedKey {
  std::string key;
  std::string is, wanted;  // "an integer", "a float32"
};

// Values of keys; nullopt if the key is absent, or if llama.cpp does not read
// it for the architecture.
struct GgufRope {
  std::string architecture;
  GgufPairing pairing = GgufPairing::kUnknown;
  std::optional<std::int64_t> context_length, block_count, embedding_length;
  std::optional<std::int64_t> head_count, key_length, key_length_swa;
  std::optional<std::int64_t> dimension_count, dimension_count_swa;
  std::optional<std::int64_t> sliding_window;
  std::optional<double> freq_base, freq_base_swa;
  std::optional<std::string> scaling_type;
  std::optional<double> factor;  // its older key is rope.scale_linear
  std::optional<std::int64_t> original_context_length;
  std::optional<double> attn_factor, yarn_log_multiplier, yarn_ext_factor;
  std::optional<double> yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
  std::optional<double> alpha;
  std::vector<double> sections;
  // False if the file turns off the rotation of every layer, which only
  // Granite's architectures can do.
  bool rotates = true;
  // An element for each layer; 0: the layer has no rope. If the list is empty,
  // the architecture decides.
  std::vector<double> rope_pattern;
  std::vector<MistypedKey> mistyped;
  // The values of the tensors of factors. A list is empty if the file does not
  // have its tensor.
  std::vector<double> rope_freqs, factors_long, factors_short;

  // HeadDim() returns the width of a head, and RotaryDim() the number of
  // rotated channels.
  std::int64_t HeadDim() const;
  std::int64_t RotaryDim() const;
  // Returns the number of values that llama.cpp needs in a tensor of factors.
  std::size_t FactorCount() const;
  // The base, which llama.cpp raises by alpha in some architectures.
  double Base() const;
  double SlidingBase() const;  // base of layers with a sliding window
  // True for an architecture in which a key turns rotation off.
  bool HasSwitch() const;
  // True if only layers with a sliding window rotate.
  bool RotatesInWindowsAlone() const;
  // False if llama.cpp does not rotate the layer; nullopt if the index alone
  // does not tell.
  std::optional<bool> RotatesLayer(std::int64_t index) const;
  // Returns the layers without rope, for example "layers 3, 7, 11", or "" if no
  // such layers are known.
  std::string LayersWithoutRope() const;
  // Returns "none", "linear", "yarn" or "longrope". An absent key stands for
  // "linear".
  std::string ScalingType() const { return scaling_type.value_or("linear"); }
  // Returns the full name of a key in this file, such as
  // "llama.rope.freq_base".
  std::string Key(absl::string_view name) const;
  std::string Describe() const;
};

bool IsFactorTensor(absl::string_view name);

// Stores the values of the tensor of factors `name`. If a value is not finite
// or not > 0, returns an error that names the tensor.
absl::Status SetFactors(absl::string_view name, std::vector<double> values,
                        GgufRope* rope);

// Returns an error that names the key or tensor. Examples of errors are a known
// key of the wrong type, a base that is not > 1, a factor that is not > 0, and
// a tensor of factors that lies outside of the file.
absl::StatusOr<GgufRope> ReadGgufRope(const GgufFile& file,
                                      const ByteSource& source);

// Returns frequencies and amplitude for a context of `length` tokens, in layers
// with a sliding window if `sliding`, else in layers with full attention. Adds
// assumptions about the defaults of absent keys. Returns an error that names
// the tensor if llama.cpp refuses the number of its factors.
absl::StatusOr<ResolvedRope> ResolveGguf(const GgufRope& gguf,
                                         std::int64_t length, bool sliding);

// Sets the axes of `rope`, a result of ResolveGguf() for the same file, if the
// architecture has sections. Positions on the fourth axis are always 0, so the
// pairs of that axis do not rotate. Returns an error that names the key if
// llama.cpp refuses the sections, or if RotaryAxes cannot express them.
absl::Status SetGgufAxes(const GgufRope& gguf, ResolvedRope* rope);

}  // namespace posenc::core::interpretation
