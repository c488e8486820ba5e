// Ends the process during a drain that takes too long.

#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"

namespace posenc::server {

// Ends the process at the next SIGTERM or SIGINT, with the exit code that a
// shell reports for that signal. All threads must have blocked both signals.
// Removes the ready file, if the path is not empty.
void ExitAtSignal(std::string ready_file);

// Ends the process after `time`, with exit code 0, and also removes the ready
// file. A drain cancels calls that take too long; this function ends a drain
// that itself takes too long. The function first calls `say`, which must return
// soon.
void ExitAfter(absl::Duration time, std::string ready_file,
               std::function<void()> say);

}  // namespace posenc::server
