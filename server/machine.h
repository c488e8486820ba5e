// What this process may use: of the machine, or of its control group, which is
// what a container's limits are.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace posenc::server {

struct CgroupLimits {
  std::optional<int> cpus;  // a quota of 1.5 counts as 2
  std::optional<std::int64_t> memory_bytes;
};

// Of version 1 or 2, the strictest of the group and those around it. `root` is
// where /proc and /sys are found: "" but in tests.
CgroupLimits ReadCgroupLimits(const std::string& root);

// At least 1: of the affinity mask and the quota, the smaller.
int UsableCpus();

// Of the physical memory and the limit, the smaller.
std::int64_t UsableMemory();

}  // namespace posenc::server
