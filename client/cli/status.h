// Errors of the command: an absl::Status that knows its exit code.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace posenc::cli {

// Part of the command's interface (README.md, --help).
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;  // the call, or a check, failed
constexpr int kExitUsage = 2;
constexpr int kExitFile = 3;

// INVALID_ARGUMENT, exit code 2.
absl::Status UsageError(absl::string_view fact);

// "<path>: <fact>", exit code 3. The code says NOT_FOUND, INVALID_ARGUMENT (not
// the format), or what the system answered.
absl::Status FileError(absl::string_view path, const absl::Status& status);
absl::Status FileError(absl::string_view path, absl::string_view fact);

// Any status that was not made above: 1.
int ExitCode(const absl::Status& status);

}  // namespace posenc::cli
