// A configuration with the key names of its class, and with the class's
// defaults for absent keys.

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
  nlohmann::json config;
  std::vector<std::string> filled;  // keys that have the class's value
};

// `row` and `family` are those of `model_type`. If `row` is null, a class with
// latent attention gets the project's defaults for absent qk_rope_head_dim and
// qk_nope_head_dim. A whole file that says nothing of its width is not filled
// in.
ClassKeys ReadAsClass(const JsonObject& config, const ClassDefaults* row,
                      const Family& family, const ProfileRules& rules,
                      const std::string& model_type);

}  // namespace posenc::core::interpretation
