#include "server/metrics/process_status.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/time/clock.h"

namespace posenc::server {
namespace {

const absl::Time kStarted = absl::Now();

std::int64_t CountEntries(const char* directory) {
  std::error_code none;
  const std::filesystem::directory_iterator first(directory, none);
  return none ? 0 : std::distance(begin(first), end(first));
}

}  // namespace

ProcessStatus ReadProcessStatus() {
  ProcessStatus status;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  status.cpu_seconds =
      absl::ToDoubleSeconds(absl::DurationFromTimeval(usage.ru_utime) +
                            absl::DurationFromTimeval(usage.ru_stime));
  status.start_time_seconds =
      absl::ToDoubleSeconds(kStarted - absl::UnixEpoch());
  std::ifstream("/proc/self/statm") >> status.virtual_bytes >>
      status.resident_bytes;  // in pages
  status.virtual_bytes *= sysconf(_SC_PAGESIZE);
  status.resident_bytes *= sysconf(_SC_PAGESIZE);
  status.threads = CountEntries("/proc/self/task");
  // Does not count the descriptor of the directory itself.
  status.open_fds = CountEntries("/proc/self/fd") - 1;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  status.max_fds = static_cast<std::int64_t>(limit.rlim_cur);
  return status;
}

}  // namespace posenc::server
