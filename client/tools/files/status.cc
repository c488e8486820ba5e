#include "client/tools/files/status.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace posenc::cli {
namespace {

// Type URL of the payload, whose value is the exit code in decimal.
constexpr char kExitPayload[] = "posenc.cli/exit";
// Type URL that marks a status that must not be printed.
constexpr char kPrintedPayload[] = "posenc.cli/printed";

absl::Status WithExit(absl::Status status, int exit_code) {
  status.SetPayload(kExitPayload, absl::Cord(absl::StrCat(exit_code)));
  return status;
}

}  // namespace

absl::Status UsageError(absl::string_view fact) {
  return WithExit(absl::InvalidArgumentError(fact), kExitUsage);
}

absl::Status FileError(absl::string_view path, const absl::Status& status) {
  return WithExit(
      absl::Status(status.code(), absl::StrCat(path, ": ", status.message())),
      kExitFile);
}

absl::Status FileError(absl::string_view path, absl::string_view fact) {
  return FileError(path, absl::InvalidArgumentError(fact));
}

absl::Status ExitWith(int exit_code) {
  absl::Status status = WithExit(absl::UnknownError("printed"), exit_code);
  status.SetPayload(kPrintedPayload, absl::Cord());
  return status;
}

bool IsPrinted(const absl::Status& status) {
  return status.GetPayload(kPrintedPayload).has_value();
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  const absl::optional<absl::Cord> payload = status.GetPayload(kExitPayload);
  int exit_code = kExitFailed;
  if (payload && !absl::SimpleAtoi(std::string(*payload), &exit_code)) {
    return kExitFailed;
  }
  return exit_code;
}

}  // namespace posenc::cli
