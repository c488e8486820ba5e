// Ends the server with the parent that started it.

#pragma once

namespace posenc::server {

// Sends this process SIGTERM once standard input ends or cannot be read. The
// kernel closes a parent's end of the pipe however the parent ends. Ignores
// what is written there.
void StopAtEndOfStdin();

}  // namespace posenc::server
