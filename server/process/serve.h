// Runs posencd from binding its addresses to the end of the drain.

#pragma once

#include <csignal>
#include <functional>

#include "absl/status/statusor.h"
#include "server/config/load.h"

namespace posenc::server {

// Exit codes. kFailed means an error while running, or a probe that finds the
// server not healthy. kUsage means a bad configuration, or an address that
// cannot be bound.
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

// Returns SIGTERM, SIGINT and SIGHUP. All threads must block these signals, so
// that Serve() receives them.
sigset_t ServeSignals();

// Serves until SIGTERM or SIGINT, then drains; a second signal ends the process
// immediately. At SIGHUP calls `load_again`, and applies the keys that may
// change at run time. Logs to standard output. Returns OK after the drain.
// Returns INTERNAL if the ready file cannot be written, and other codes for
// invalid options and addresses.
absl::Status Serve(
    const LoadedConfig& loaded, const char* instruction_set,
    const std::function<absl::StatusOr<LoadedConfig>()>& load_again);

}  // namespace posenc::server
