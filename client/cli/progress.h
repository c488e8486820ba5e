// A line on stderr that tells how long something has been going on: only where
// stderr is a terminal, and only once it takes long.

#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "posenc/client.h"

namespace posenc::cli {

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

// Options of a call that tell, after `what`, how far a stream is.
CallOptions ShowProgress(Progress* progress, const std::string& what);

}  // namespace posenc::cli
