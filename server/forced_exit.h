// Ends the process while it drains, if it must not wait for that.

#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"

namespace posenc::server {

// Ends the process at the next SIGTERM or SIGINT, which all threads have
// blocked, with the code by which a shell reports death by that signal. Removes
// the ready file, if the path is not empty.
void ExitAtSignal(std::string ready_file);

// The same after this time, with code 0: a drain ends calls that are late, and
// this is how the last of them end. Calls `say` before that, which must return
// soon.
void ExitAfter(absl::Duration time, std::string ready_file,
               std::function<void()> say);

}  // namespace posenc::server
