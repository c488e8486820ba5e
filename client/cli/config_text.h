// The text of a configuration in a file, or of a pipe.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace posenc::cli {

// INVALID_ARGUMENT for a file of more than 64 MiB, which is far more than a
// configuration has; else as FileBytes::Read.
absl::StatusOr<std::string> ReadConfigText(const std::string& path);

}  // namespace posenc::cli
