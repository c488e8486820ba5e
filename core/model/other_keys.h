// Values that transformers' classes refuse a file for, whether or not rotation
// needs them.

#pragma once

#include <string>
#include <vector>

#include "core/model/json_object.h"

namespace posenc::core {

// Warns of values that are not of the type that the class of `config`, or of
// one of the parts in it, has for their keys. Nothing is said of types whose
// class is not known.
void WarnOfOtherKeys(const JsonObject& config,
                     std::vector<std::string>* warnings);

}  // namespace posenc::core
