// Limits of control groups, from the test's own /proc and /sys.

#include "server/base/machine.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fixtures/directory.h"

namespace posenc::server {
namespace {

class MachineTest : public testing::Test {
 protected:
  // Expects these limits on a machine that has `files` (path and text).
  void ExpectLimits(
      const std::vector<std::pair<std::string, std::string>>& files,
      std::optional<int> cpus, std::optional<std::int64_t> memory_bytes) {
    const test::Directory root;
    for (const auto& [path, text] : files) {
      const std::filesystem::path file = root.path() + path;
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file) << text << '\n';
    }
    const CgroupLimits limits = ReadCgroupLimits(root.path());
    EXPECT_EQ(limits.cpus, cpus);
    EXPECT_EQ(limits.memory_bytes, memory_bytes);
  }
};

TEST_F(MachineTest, WithoutControlGroupsThereAreNoLimits) {
  ExpectLimits({}, std::nullopt, std::nullopt);
}

TEST_F(MachineTest, ReadsVersion2) {
  ExpectLimits({{"/proc/self/cgroup", "0::/"},
                {"/sys/fs/cgroup/cpu.max", "150000 100000"},
                {"/sys/fs/cgroup/memory.max", "268435456"}},
               2, 268435456);
}

TEST_F(MachineTest, MaxIsNoLimit) {
  ExpectLimits({{"/proc/self/cgroup", "0::/a"},
                {"/sys/fs/cgroup/a/cpu.max", "max 100000"},
                {"/sys/fs/cgroup/a/memory.max", "max"}},
               std::nullopt, std::nullopt);
}

TEST_F(MachineTest, TheStrictestOfTheGroupsAroundHolds) {
  ExpectLimits({{"/proc/self/cgroup", "0::/pods/burstable/one"},
                {"/sys/fs/cgroup/pods/cpu.max", "800000 100000"},
                {"/sys/fs/cgroup/pods/memory.max", "1000"},
                {"/sys/fs/cgroup/pods/burstable/one/cpu.max", "50000 100000"},
                {"/sys/fs/cgroup/pods/burstable/one/memory.max", "4000"}},
               1, 1000);
}

TEST_F(MachineTest, ReadsVersion1) {
  ExpectLimits(
      {{"/proc/self/cgroup",
        "9:name=systemd:/\n4:memory:/pods/one\n2:cpu,cpuacct:/pods/one\n0::/"},
       {"/sys/fs/cgroup/cpu/pods/one/cpu.cfs_quota_us", "400000"},
       {"/sys/fs/cgroup/cpu/pods/one/cpu.cfs_period_us", "100000"},
       {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"},
       {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"},
       {"/sys/fs/cgroup/memory/pods/one/memory.limit_in_bytes", "536870912"},
       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"}},
      4, 536870912);
}

// In a container the mount's root is its own group, but the path is the host's.
TEST_F(MachineTest, APathOfTheHostFallsBackToTheRoot) {
  ExpectLimits(
      {{"/proc/self/cgroup", "4:memory:/docker/123\n2:cpu:/docker/123"},
       {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000"},
       {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"},
       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576"}},
      3, 1048576);
}

TEST(Machine, SomethingIsUsable) {
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_GT(UsableMemory(), 0);
}

}  // namespace
}  // namespace posenc::server
