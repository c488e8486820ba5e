// Reads how many CPUs and how much memory this process may use. In a container,
// the limits are those of the container's control group. The machine's own
// number of CPUs and size of memory do not show these limits.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace posenc::server {

struct CgroupLimits {
  std::optional<int> cpus;  // a quota of 1.5 counts as 2
  std::optional<std::int64_t> memory_bytes;
};

// Returns the strictest limits of this process's control group and of the
// groups above it. Supports versions 1 and 2 of control groups. `root` is the
// folder that contains /proc and /sys. Only tests pass a `root` other than "".
CgroupLimits ReadCgroupLimits(const std::string& root);

// Returns the smaller of the number of CPUs in the affinity mask and the
// control group's quota, but at least 1.
int UsableCpus();

// Returns the bytes of physical memory, or the group's limit if it is smaller.
std::int64_t UsableMemory();

}  // namespace posenc::server
