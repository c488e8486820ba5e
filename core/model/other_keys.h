// Values that transformers' classes refuse a file for, whether or not rotation
// needs them.

#pragma once

#include <string>
#include <vector>

#include "core/model/json_object.h"

namespace posenc::core {

// Warns of each value whose type is not the one that transformers' class has
// for its key: the class of `config`, or that of the part which has the key.
// The function says nothing of a model_type whose class is not known.
void WarnOfOtherKeys(const JsonObject& config,
                     std::vector<std::string>* warnings);

}  // namespace posenc::core
