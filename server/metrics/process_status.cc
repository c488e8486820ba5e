#include "server/metrics/process_status.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace posenc::server {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::int64_t Number(absl::string_view text) {
  std::int64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

// Returns the time when the machine started, in seconds since 1970.
std::int64_t BootTime() {
  const std::string all = ReadAll("/proc/stat");
  for (absl::string_view line : absl::StrSplit(all, '\n')) {
    if (absl::ConsumePrefix(&line, "btime ")) return Number(line);
  }
  return 0;
}

// Reads the fields of /proc/self/stat after the name, which may hold blanks and
// brackets. proc(5) numbers fields from 1; the first one here is number 3.
void ReadStat(ProcessStatus* status) {
  const std::string all = ReadAll("/proc/self/stat");
  const std::size_t name_end = all.rfind(") ");
  if (name_end == std::string::npos) return;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(all).substr(name_end + 2), ' ');
  const auto field = [&fields](std::size_t number) {
    const std::size_t index = number - 3;
    return index < fields.size() ? Number(fields[index]) : 0;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  status->cpu_seconds = static_cast<double>(field(14) + field(15)) / ticks;
  status->threads = field(20);
  status->start_time_seconds =
      static_cast<double>(BootTime()) + static_cast<double>(field(22)) / ticks;
  status->virtual_bytes = field(23);
  status->resident_bytes = field(24) * sysconf(_SC_PAGESIZE);
}

std::int64_t CountOpenFds() {
  std::error_code none;
  const std::filesystem::directory_iterator first("/proc/self/fd", none);
  // Does not count the directory's own descriptor.
  return none ? 0 : std::distance(begin(first), end(first)) - 1;
}

}  // namespace

ProcessStatus ReadProcessStatus() {
  ProcessStatus status;
  ReadStat(&status);
  status.open_fds = CountOpenFds();
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    status.max_fds = static_cast<std::int64_t>(limit.rlim_cur);
  }
  return status;
}

}  // namespace posenc::server
