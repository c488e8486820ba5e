// Flags of the form `--flag=`, without a value.

#pragma once

#include "absl/status/status.h"

namespace posenc::flags {

// Returns INVALID_ARGUMENT, beginning with the flag, if an argument is such a
// flag. Must be called before CLI11 parses: it would take the next argument as
// the value.
absl::Status CheckEmptyValues(int argc, const char* const* argv);

}  // namespace posenc::flags
