// A configuration under the names that its class has for its keys, with what
// the class takes for absent ones.

#pragma once

#include <string>
#include <vector>

#include "core/interpretation/class_defaults.h"
#include "core/interpretation/families.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/profile.h"

namespace posenc::core::interpretation {

// A json's move throws only if the json is broken.
struct ClassKeys {  // NOLINT(bugprone-exception-escape)
  nlohmann::json config;
  std::vector<std::string> filled;  // keys that have the class's value
};

// `row` and `family` are those of `model_type`, `project` the reader's name.
ClassKeys ReadAsClass(const JsonObject& config, const ClassDefaults& row,
                      const Family& family, absl::string_view model_type,
                      absl::string_view project);

// Returns the configuration with the slices of latent attention that a project
// takes for absent ones, if no class of transformers has them. `filled` is
// empty if it takes none.
ClassKeys FillSlices(const JsonObject& config, const ProfileRules& rules,
                     const std::string& model_type);

}  // namespace posenc::core::interpretation
