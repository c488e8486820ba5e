// Checks the configuration as a whole; SetKey() has checked each value.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config/config.h"

namespace posenc::server {

// Finds the errors that can be found before anything is bound or written: the
// errors of CheckOptions(), invalid addresses of the admin server and of the
// collector of traces, and a ready file that cannot be written. The error's
// field is a flag, for example "--listen".
absl::Status CheckConfig(const Config& config);

// Returns warnings if a valid configuration needs more than the machine or the
// container has. An operator should see them at the start, and not when the
// kernel ends the process. Also warns of expired tokens, and of addresses that
// other machines can reach.
std::vector<std::string> Doubts(const Config& config);

}  // namespace posenc::server
