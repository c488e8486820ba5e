// Reads the configuration: flags win over POSENC_*, these over the file, the
// file over defaults.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/config/config.h"
#include "server/config/keys.h"

namespace posenc::server {

// What the command line asks for.
enum class Task {
  kServe,        // or to probe, if Config::probe says so
  kShow,         // to print LoadedConfig::text: --help, --version, --print-...
  kCheckConfig,  // to say whether the configuration is valid
};

struct LoadedConfig {
  Config config;
  // Where each of Keys() was set: "command line", "POSENC_LISTEN",
  // "/etc/posenc.toml:3"; "default".
  std::vector<std::string> sources;
  // One line each.
  std::vector<std::string> warnings;
  Task task = Task::kServe;
  std::string text;
};

// The arguments are those of main(); `environment` ends with a null pointer,
// as environ. The status' message is one line that begins with the key as a
// flag and ends with the source: "--max-waiting: 'many' is not a whole number
// (POSENC_MAX_WAITING)".
absl::StatusOr<LoadedConfig> LoadConfig(int argc, const char* const* argv,
                                        const char* const* environment);

// The same status with the source of the key behind its message, if the error
// names a key as its field (core::FieldInvalid("--listen", ...)).
absl::Status WithSource(const absl::Status& status, const LoadedConfig& loaded);

}  // namespace posenc::server
