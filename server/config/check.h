// What can be wrong with a configuration whose values are right one by one.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config/config.h"

namespace posenc::server {

// Everything that is known to be wrong before anything is bound or written:
// CheckOptions() of the server, the admin server's address, where traces go,
// and whether the ready file can be written. The error's field is a key, as
// "--listen".
absl::Status CheckConfig(const Config& config);

// Warnings of what a valid configuration asks for and the machine, or the
// container, does not have: an operator should learn it now and not when the
// kernel ends the process. And of what others can reach.
std::vector<std::string> Doubts(const Config& config);

}  // namespace posenc::server
