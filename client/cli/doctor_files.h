// The inputs of `posenc doctor`: what a model's folder holds, as far as it says
// something about rotary encodings. Of weights only headers and small tables
// are read.

#pragma once

#include <string>
#include <vector>

#include "core/model/doctor/doctor.h"

namespace posenc::cli {

// The inputs that the paths name, folders opened (but not what is in their
// folders). What cannot be read comes as an input that says why.
std::vector<core::DoctorInput> ReadDoctorInputs(
    const std::vector<std::string>& paths);

}  // namespace posenc::cli
