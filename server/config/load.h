// Reads the configuration. Flags override POSENC_* variables, variables
// override the file, and the file overrides the defaults.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/config/config.h"
#include "server/config/keys.h"

namespace posenc::server {

// The task that the command line requests.
enum class Task {
  kServe,        // serve, or probe if Config::probe is set
  kShow,         // print LoadedConfig::text: --help, --version, --print-...
  kCheckConfig,  // print whether the configuration is valid
};

struct LoadedConfig {
  Config config;
  // The sources of the values, in the order of Keys(), such as "command line",
  // "POSENC_LISTEN", "/etc/posenc.toml:3" or "default".
  std::vector<std::string> sources;
  // Each warning is one line.
  std::vector<std::string> warnings;
  Task task = Task::kServe;
  std::string text;
};

// Reads the arguments of main() and `environment`, which ends with a null
// pointer, like environ. The status' message is one line that begins with the
// key as a flag and ends with the source, as in "--max-waiting: ...
// (POSENC_MAX_WAITING)".
absl::StatusOr<LoadedConfig> LoadConfig(int argc, const char* const* argv,
                                        const char* const* environment);

// Appends the source of the key to the status' message, if the error's field is
// a key (core::FieldInvalid("--listen", ...)).
absl::Status WithSource(const absl::Status& status, const LoadedConfig& loaded);

}  // namespace posenc::server
