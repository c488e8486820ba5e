// Ends the server when its parent process ends.

#pragma once

#include "absl/status/status.h"

namespace posenc::server {

// Returns INVALID_ARGUMENT if the process was started with standard input
// closed. Descriptor 0 then belongs to another file.
absl::Status CheckStdin();

// Sends SIGTERM to this process when standard input ends or cannot be read. The
// kernel closes the parent's end of the pipe when the parent ends for any
// reason. Ignores all input.
void StopAtEndOfStdin();

}  // namespace posenc::server
