// What transformers' classes refuse in two values of a file together.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/model/json_object.h"

namespace posenc::core {

// Warns where the class of `model_type` refuses the file, or this part of it,
// by values that have no part in rotation.
void WarnOfClassRules(const JsonObject& config, absl::string_view model_type,
                      std::vector<std::string>* warnings);

}  // namespace posenc::core
