// Keys that have no part in rotation, and for which transformers' classes
// refuse a file all the same.

#pragma once

#include <string>
#include <vector>

#include "core/model/json_object.h"

namespace posenc::core {

// Warns of values of a wrong type, and of nulls where the classes want values.
void WarnOfOtherKeys(const JsonObject& config,
                     std::vector<std::string>* warnings);

}  // namespace posenc::core
