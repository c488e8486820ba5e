// Errors of the command. They are absl::Status like the server's errors; a
// payload has the exit code.

#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"  // IWYU pragma: export

namespace posenc::cli {

// Exit codes are part of the command's interface (README.md, --help): scripts
// use them to find the cause of an error.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;  // the call, or a check, failed
constexpr int kExitUsage = 2;   // wrong flags
constexpr int kExitFile =
    3;  // a file, or standard output, cannot be read or written

// Makes INVALID_ARGUMENT with exit code 2. `fact` starts with the flag: "--in:
// ...".
absl::Status UsageError(absl::string_view fact);

// Makes "<path>: <fact>" with exit code 3. The status code is NOT_FOUND if
// something is absent, INVALID_ARGUMENT if the file has another format, or the
// code of the operating system's error.
absl::Status FileError(absl::string_view path, const absl::Status& status);
absl::Status FileError(absl::string_view path, absl::string_view fact);

// Returns `read`. If it is an error, returns FileError(path, error) instead.
template <typename T>
absl::StatusOr<T> InFile(absl::string_view path, absl::StatusOr<T> read) {
  if (read.ok()) return read;
  return FileError(path, read.status());
}

// Makes a status with this exit code and nothing to print, for a command that
// has already printed its error.
absl::Status ExitWith(int exit_code);
bool IsPrinted(const absl::Status& status);

// Returns the exit code of a status; 1 for the server's errors, which have no
// exit code.
int ExitCode(const absl::Status& status);

}  // namespace posenc::cli
