// config.key-twice: keys that an object has twice. Parsers take the last of
// them without a word.

#pragma once

#include <vector>

#include "core/doctor/doctor.h"
#include "core/doctor/finding.h"

namespace posenc::core::doctor {

// Of a text that is JSON.
void CheckKeysTwice(const DoctorInput& input, std::vector<Finding>* findings);

}  // namespace posenc::core::doctor
