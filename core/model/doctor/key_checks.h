// config.key-twice: keys that an object has twice. Parsers take the last of
// them without a word.

#pragma once

#include <vector>

#include "core/model/doctor/doctor.h"
#include "core/model/doctor/finding.h"

namespace posenc::core {

// Of a text that is JSON.
void CheckKeysTwice(const DoctorInput& input, std::vector<Finding>* findings);

}  // namespace posenc::core
