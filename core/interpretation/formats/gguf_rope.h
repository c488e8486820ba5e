// The rotary encoding of a GGUF file, read from its keys and tensors as
// llama.cpp does.
//
//   angle of pair i at p = p base^(-2i/d) / f_i, then linear or YaRN
//
// f is rope_freqs.weight if the file has it, else rope_factors_long.weight or
// _short depending on whether the context is longer than the original one.
// Linear divides by the factor; YaRN mixes w and w / factor by a ramp that ends
// at whole pairs. Its amplitude is g(s, 1) / g(s, m), g(s, m) = 1 + 0.1 m ln s,
// m = yarn_log_multiplier (deepseek2 stores 0.1 m, and its amplitude is 1),
// times attn_factor.
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

// How an architecture's rows are paired.
enum class GgufPairing {
  kUnknown,      // llama.cpp, in the version that was read, does not list it
  kNone,         // it does not rotate
  kInterleaved,  // "norm"
  kHalfSplit,    // "neox"
  kSections,     // "mrope": half-split, several axes
  kInterleavedSections,  // "imrope"
};

GgufPairing PairingOf(const std::string& architecture, bool has_sections);

// Values of keys; nullopt for those that are absent.
struct GgufRope {
  std::string architecture;
  GgufPairing pairing = GgufPairing::kUnknown;
  std::optional<std::int64_t> context_length, block_count, embedding_length;
  std::optional<std::int64_t> head_count, key_length, key_length_swa;
  std::optional<std::int64_t> dimension_count, dimension_count_swa;
  std::optional<std::int64_t> sliding_window;
  std::optional<double> freq_base, freq_base_swa;
  std::optional<std::string> scaling_type;
  std::optional<double> factor;  // also by its old name scale_linear
  std::optional<std::int64_t> original_context_length;
  std::optional<double> attn_factor, yarn_log_multiplier, yarn_ext_factor;
  std::optional<double> yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
  std::vector<double> sections;
  // Empty if the file has no such tensor.
  std::vector<double> rope_freqs, factors_long, factors_short;

  // Return the widths of a head and of its rotated part.
  std::int64_t HeadDim() const;
  std::int64_t RotaryDim() const;
  // Returns the number of values that llama.cpp needs in a tensor of factors.
  std::size_t FactorCount() const;
  double Base() const { return freq_base.value_or(10000); }
  // "none", "linear", "yarn" or "longrope"; linear if the key is absent.
  std::string ScalingType() const { return scaling_type.value_or("linear"); }
  // Returns the full name of a key in this file: "llama.rope.freq_base".
  std::string Key(absl::string_view name) const;
  std::string Describe() const;
};

// True for the tensors that hold factors.
bool IsFactorTensor(absl::string_view name);

// Stores the values of a tensor of factors. Returns an error that names it
// unless all values are finite and > 0.
absl::Status SetFactors(absl::string_view name, std::vector<double> values,
                        GgufRope* rope);

// Errors name the key or tensor: a known key of the wrong type, a base that is
// not a number > 1, a factor that is not > 0, factors outside of the file.
absl::StatusOr<GgufRope> ReadGgufRope(const GgufFile& file,
                                      const ByteSource& source);

// Frequencies and amplitude of the full-attention layers, or of those with a
// sliding window, for a context of `length` tokens. Defaults of absent keys are
// reported as assumptions. Factors with a length that llama.cpp refuses are an
// error that names the tensor.
absl::StatusOr<ResolvedRope> ResolveGguf(const GgufRope& gguf,
                                         std::int64_t length, bool sliding);

// Sets the axes of `rope`, a result of ResolveGguf() for the same file, if the
// architecture has sections. Pairs of the fourth axis, whose position is always
// 0, do not rotate. Sections that llama.cpp refuses are an error that names the
// key.
absl::Status SetGgufAxes(const GgufRope& gguf, ResolvedRope* rope);

}  // namespace posenc::core::interpretation
