// A line on stderr with the progress of a call. It appears only if stderr is a
// terminal, and only after 0.7 s, so that quick commands print nothing.

#pragma once

#include <chrono>
#include <string>

#include "posenc/client.h"

namespace posenc::cli {

// For one thread at a time: a stream calls on_progress in one thread.
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
  Clock::time_point drawn_;  // time of the last drawing; 0: never
};

// Returns call options that update the line: `what`, the bytes that have come
// back, and all bytes. Only streams report. `progress` must outlive the call.
CallOptions ShowProgress(Progress* progress, const std::string& what);

}  // namespace posenc::cli
