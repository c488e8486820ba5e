#include "server/process/forced_exit.h"

#include <unistd.h>

#include <csignal>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "server/process/serve.h"

namespace posenc::server {
namespace {

// Ends the process without running destructors, because other threads still use
// the objects.
[[noreturn]] void Exit(const std::string& ready_file, int code) {
  if (!ready_file.empty()) unlink(ready_file.c_str());
  _exit(code);
}

}  // namespace

void ExitAtSignal(std::string ready_file) {
  std::thread([path = std::move(ready_file)] {
    const sigset_t signals = ServeSignals();
    int again = SIGHUP;
    while (again == SIGHUP) sigwait(&signals, &again);
    Exit(path, 128 + again);
  }).detach();
}

void ExitAfter(absl::Duration time, std::string ready_file,
               std::function<void()> say) {
  std::thread([time, path = std::move(ready_file), say = std::move(say)] {
    absl::SleepFor(time);
    say();
    Exit(path, 0);
  }).detach();
}

}  // namespace posenc::server
