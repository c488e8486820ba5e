// Flags that are given as `--flag=`, with nothing behind the sign.

#pragma once

#include "absl/status/status.h"

namespace posenc::flags {

// INVALID_ARGUMENT, beginning with the flag, if an argument is such a flag. To
// be called before CLI11 parses: it would take the next argument for the value.
absl::Status CheckEmptyValues(int argc, const char* const* argv);

}  // namespace posenc::flags
