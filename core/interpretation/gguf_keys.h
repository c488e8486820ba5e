// The keys of a GGUF file that say something about rotation, as a GGUF file of
// their own: a vocabulary of ten MiB and the tensors stay at home.

#pragma once

#include <string>

#include "core/interpretation/gguf_file.h"

namespace posenc::core::interpretation {

// Version 3, without tensors. Read again it has the keys of `file`.
std::string WriteGgufKeys(const GgufFile& file);

}  // namespace posenc::core::interpretation
