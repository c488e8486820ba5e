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

// `row` and `family` belong to `model_type`. Without a row, the configuration
// of a class with latent attention gets the project's default slices. A whole
// file without a width is not filled in.
ClassKeys ReadAsClass(const JsonObject& config, const ClassDefaults* row,
                      const Family& family, const ProfileRules& rules,
                      const std::string& model_type);

}  // namespace posenc::core::interpretation
