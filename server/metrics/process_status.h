// Numbers of the Linux kernel about this process.

#pragma once

#include <cstdint>

namespace posenc::server {

// A number that could not be read is 0.
struct ProcessStatus {
  double cpu_seconds = 0;         // user and system time
  double start_time_seconds = 0;  // since 1970
  std::int64_t virtual_bytes = 0, resident_bytes = 0;
  std::int64_t threads = 0;
  std::int64_t open_fds = 0, max_fds = 0;
};

// Reads /proc/self. Safe for many threads.
ProcessStatus ReadProcessStatus();

}  // namespace posenc::server
