// The values that transformers' configuration classes use for absent keys, and
// how the classes name keys. The rows are in rows/class_defaults.json, which
// tests/parity/class_defaults.py writes.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

// A row is for all classes with the same values. 0 stands for a value that the
// class derives.
struct ClassDefaults {
  // The types in the spelling of ModelKey(), separated by blanks.
  absl::string_view model_types;
  std::int64_t hidden_size;
  std::int64_t num_attention_heads;
  std::int64_t num_hidden_layers;
  std::int64_t max_position_embeddings;
  std::int64_t head_dim = 0;
  // The class refuses a hidden_size that num_attention_heads does not divide.
  bool divided = false;
  bool ignores_head_dim = false;  // takes hidden_size / num_attention_heads
  // Pairs of the class's own name of a key and the key's usual name, such as
  // "n_embd=hidden_size", separated by blanks.
  absl::string_view names = {};
  // Widths of a head's slices in latent attention; 0: the class has no latent
  // attention.
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t qk_nope_head_dim = 0;
};

// Returns null if the type's class is not known.
const ClassDefaults* FindClassDefaults(absl::string_view model_type);

// A configuration as its class reads it: with the key names that the class
// reads, and with the class's defaults for absent keys.
//
// Moving a json throws only if its invariants are broken.
struct ClassKeys {  // NOLINT(bugprone-exception-escape)
  json config;
  std::vector<std::string> filled;  // keys that got the class's default
};

// `row` and `family` belong to `model_type`. If `row` is null, absent slices of
// latent attention (qk_rope_head_dim, qk_nope_head_dim) get the project's
// defaults. A whole file without a key about the width of heads gets no
// defaults. A part of a file gets defaults even without a key about the width.
ClassKeys ReadAsClass(const JsonObject& config, const ClassDefaults* row,
                      const Family& family, const ProfileRules& rules,
                      const std::string& model_type);

}  // namespace posenc::core::interpretation
