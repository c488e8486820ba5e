// A configuration under the names that its class has for its keys, with what
// the class takes for absent ones.

#pragma once

#include <string>
#include <vector>

#include "core/interpretation/classes/class_defaults.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

// A json's move throws only if the json is broken.
struct ClassKeys {  // NOLINT(bugprone-exception-escape)
  nlohmann::json config;
  std::vector<std::string> filled;  // keys that have the class's value
};

// `row` and `family` are those of `model_type`. Without a row, the
// configuration of a class with latent attention gets the slices that the
// project takes for absent ones. A whole file that says nothing of its width is
// not filled in.
ClassKeys ReadAsClass(const JsonObject& config, const ClassDefaults* row,
                      const Family& family, const ProfileRules& rules,
                      const std::string& model_type);

}  // namespace posenc::core::interpretation
