// The inputs of `posenc doctor`: what a model's folder holds, as far as it says
// something about rotary encodings. Of weights only headers and small tables
// are read.

#pragma once

#include <string>
#include <vector>

#include "posenc/v1/service.pb.h"

namespace posenc::cli {

// The same text if it is UTF-8, as messages need it; names of files, and what
// stands in them, may hold any bytes, which become U+FFFD.
std::string Utf8(const std::string& text);

// The inputs that the paths name, folders opened (but not what is in their
// folders). What cannot be read comes as an input that says why.
std::vector<v1::ModelDescription> ReadDescriptions(
    const std::vector<std::string>& paths);

}  // namespace posenc::cli
