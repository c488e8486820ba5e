// Checks the configuration as a whole; SetKey() has checked each value.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config/config.h"

namespace posenc::server {

// Finds the errors that can be found before anything is bound or written:
// CheckOptions() of the server, the admin server's address, the address for
// traces, and whether the ready file can be written. The error's field is a
// flag, for example "--listen".
absl::Status CheckConfig(const Config& config);

// Warns if a valid configuration needs more than the machine or the container
// has: an operator should see it now, and not when the kernel ends the process.
// Also warns of expired tokens, and of addresses that others can reach.
std::vector<std::string> Doubts(const Config& config);

}  // namespace posenc::server
