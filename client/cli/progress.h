// A line on stderr that says what is going on and for how long. It appears only
// if stderr is a terminal, and only after 0.7 s, so that quick commands stay
// quiet.

#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "posenc/client.h"

namespace posenc::cli {

// Draws from a thread of its own, from construction to destruction. Set() may
// be called from any thread.
class Progress {
 public:
  explicit Progress(std::string what);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // erases the line

  void Set(std::string what);

 private:
  void Run();

  std::mutex mutex_;
  std::string what_;  // guarded by mutex_
  std::condition_variable changed_;
  bool done_ = false;  // guarded by mutex_
  std::thread thread_;
};

// Call options that keep the line up to date: `what`, then how many bytes of
// how many have come back. Only streams report; a unary call leaves the line as
// it is. `progress` must outlive the call.
CallOptions ShowProgress(Progress* progress, const std::string& what);

}  // namespace posenc::cli
