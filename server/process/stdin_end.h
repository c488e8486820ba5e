// Ends the server with the parent that started it.

#pragma once

namespace posenc::server {

// Sends this process SIGTERM once standard input ends or cannot be read.
// However the parent ends, the kernel closes its end of the pipe. Ignores all
// input.
void StopAtEndOfStdin();

}  // namespace posenc::server
