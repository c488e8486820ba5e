// A configuration as its class reads it: with the key names that the class
// reads, and with the class's defaults for absent keys.

#pragma once

#include <string>
#include <vector>

#include "core/interpretation/classes/class_defaults.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

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
