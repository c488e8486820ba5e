// Ends the server when its parent process ends.

#pragma once

namespace posenc::server {

// Sends SIGTERM to this process when standard input ends or cannot be read. The
// kernel closes the parent's end of the pipe when the parent ends for any
// reason. Ignores all input.
void StopAtEndOfStdin();

}  // namespace posenc::server
