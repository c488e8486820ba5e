// Reads how many CPUs and how much memory this process may use. In a container,
// the limits are those of the container's control group. The machine's numbers
// of CPUs and of bytes do not show these limits.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace posenc::server {

struct CgroupLimits {
  std::optional<int> cpus;  // a quota of 1.5 counts as 2
  std::optional<std::int64_t> memory_bytes;
};

// Reads the limits of this process's control group and of the groups above it,
// and returns the strictest. Supports versions 1 and 2 of control groups.
// `root` is the folder that holds /proc and /sys: "" except in tests.
CgroupLimits ReadCgroupLimits(const std::string& root);

// Returns the number of CPUs in the affinity mask, or the group's quota if it
// is smaller; at least 1.
int UsableCpus();

// Returns the smaller of the physical memory and the group's limit, in bytes.
std::int64_t UsableMemory();

}  // namespace posenc::server
