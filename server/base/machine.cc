#include "server/base/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace posenc::server {
namespace {

// Returns the numbers on a file's first line. A word that is not a number
// ("max") becomes NaN. Returns an empty list if the file does not exist.
std::vector<double> ReadNumbers(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::vector<double> numbers;
  for (const absl::string_view word :
       absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    double number;
    numbers.push_back(absl::SimpleAtod(word, &number) ? number : std::nan(""));
  }
  return numbers;
}

// Sets `*to` to `limit` if `*to` has no value or a larger value. Ignores a
// `limit` that is not above 0. A control group without a limit has -1 in
// version 1, and "max" (NaN here) in version 2.
template <typename T>
void Tighten(double limit, std::optional<T>* to) {
  if (!(limit > 0)) return;
  const double most = std::ldexp(1.0, std::numeric_limits<T>::digits - 1);
  const T value = static_cast<T>(std::min(std::ceil(limit), most));
  *to = std::min(to->value_or(value), value);
}

void ReadCpus(const std::string& directory, CgroupLimits* limits) {
  std::vector<double> quota = ReadNumbers(directory + "/cpu.max");
  if (quota.empty()) {
    quota = ReadNumbers(directory + "/cpu.cfs_quota_us");
    const auto period = ReadNumbers(directory + "/cpu.cfs_period_us");
    quota.insert(quota.end(), period.begin(), period.end());
  }
  if (quota.size() == 2) Tighten(quota[0] / quota[1], &limits->cpus);
}

void ReadMemory(const std::string& directory, CgroupLimits* limits) {
  for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
    const std::vector<double> numbers = ReadNumbers(directory + name);
    if (!numbers.empty()) Tighten(numbers[0], &limits->memory_bytes);
  }
}

// Reads the group at `path` and every group above it, up to the mount's root,
// because a group's limit also applies to all groups below it. In a container,
// `path` may be a path of the host, and only the mount's root exists.
void ReadUpwards(const std::string& mount, std::string path,
                 void (*read)(const std::string&, CgroupLimits*),
                 CgroupLimits* limits) {
  while (!path.empty()) {
    read(mount + path, limits);
    path.resize(path == "/" ? 0 : std::max<std::size_t>(path.rfind('/'), 1));
  }
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root) {
  CgroupLimits limits;
  std::ifstream groups(root + "/proc/self/cgroup");
  // A line is "ID:CONTROLLERS:PATH". Version 2 has only the line "0::PATH".
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string base = root + "/sys/fs/cgroup";
    if (parts[1].empty()) {
      ReadUpwards(base, parts[2], ReadCpus, &limits);
      ReadUpwards(base, parts[2], ReadMemory, &limits);
    }
    for (const absl::string_view controller : absl::StrSplit(parts[1], ',')) {
      if (controller == "cpu") {
        ReadUpwards(base + "/cpu", parts[2], ReadCpus, &limits);
      } else if (controller == "memory") {
        ReadUpwards(base + "/memory", parts[2], ReadMemory, &limits);
      }
    }
  }
  return limits;
}

int UsableCpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int cpus = sched_getaffinity(0, sizeof(mask), &mask) == 0
                       ? CPU_COUNT(&mask)
                       : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(cpus, ReadCgroupLimits("").cpus.value_or(cpus)));
}

std::int64_t UsableMemory() {
  const std::int64_t physical =
      std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(physical,
                  ReadCgroupLimits("").memory_bytes.value_or(physical));
}

}  // namespace posenc::server
