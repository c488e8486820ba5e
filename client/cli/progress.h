// A line on stderr that says how far a call is. It appears only if stderr is a
// terminal, and only after 0.7 s, so that quick commands stay quiet.

#pragma once

#include <chrono>
#include <string>

#include "posenc/client.h"

namespace posenc::cli {

// For one thread at a time, which a stream's calls of on_progress are.
class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // erases the line

  void Tell(const std::string& what);

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_;  // unless 0: when the line was drawn
};

// Call options that keep the line up to date: `what`, then how many bytes of
// how many have come back. Only streams report. `progress` must outlive the
// call.
CallOptions ShowProgress(Progress* progress, const std::string& what);

}  // namespace posenc::cli
