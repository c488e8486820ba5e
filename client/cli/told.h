// The end of a command that has already said on its own what is wrong.

#pragma once

#include "absl/status/status.h"

namespace posenc::cli {

// A status with this exit code and nothing to print.
absl::Status ExitWith(int exit_code);
bool IsTold(const absl::Status& status);

}  // namespace posenc::cli
