// Checks the configuration as a whole; SetKey() has checked each value.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config/config.h"

namespace posenc::server {

// Returns the first error that can be found before a socket is bound or a file
// is written. Checks CheckOptions(), --kserve, the addresses of the admin
// server and of the collector of traces, and the path of the ready file. The
// error's field is a flag, for example "--listen".
absl::Status CheckConfig(const Config& config);

// Returns warnings if a valid configuration needs more than the machine or the
// container has. An operator should see these warnings at the start, and not
// when the kernel ends the process. Also warns if all tokens have expired, or
// if other machines can reach the admin server.
std::vector<std::string> Doubts(const Config& config);

}  // namespace posenc::server
