// Limits of control groups, from the test's own /proc and /sys.

#include "server/base/machine.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/directory.h"

namespace posenc::server {
namespace {

using testing::Optional;

// The test's own /proc and /sys.
class MachineTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const test::Directory directory_;
  const std::string& root_ = directory_.path();
};

TEST_F(MachineTest, WithoutControlGroupsThereAreNoLimits) {
  const CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_FALSE(limits.cpus.has_value());
  EXPECT_FALSE(limits.memory_bytes.has_value());
}

TEST_F(MachineTest, ReadsVersion2) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  Write("/sys/fs/cgroup/memory.max", "268435456\n");

  const CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_THAT(limits.cpus, Optional(2));
  EXPECT_THAT(limits.memory_bytes, Optional(268435456));
}

TEST_F(MachineTest, MaxIsNoLimit) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/a/memory.max", "max\n");

  const CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_FALSE(limits.cpus.has_value());
  EXPECT_FALSE(limits.memory_bytes.has_value());
}

TEST_F(MachineTest, TheStrictestOfTheGroupsAroundHolds) {
  Write("/proc/self/cgroup", "0::/pods/burstable/one\n");
  Write("/sys/fs/cgroup/pods/cpu.max", "800000 100000\n");
  Write("/sys/fs/cgroup/pods/memory.max", "1000\n");
  Write("/sys/fs/cgroup/pods/burstable/one/cpu.max", "50000 100000\n");
  Write("/sys/fs/cgroup/pods/burstable/one/memory.max", "4000\n");

  const CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_THAT(limits.cpus, Optional(1));
  EXPECT_THAT(limits.memory_bytes, Optional(1000));
}

TEST_F(MachineTest, ReadsVersion1) {
  Write(
      "/proc/self/cgroup",
      "9:name=systemd:/\n4:memory:/pods/one\n2:cpu,cpuacct:/pods/one\n0::/\n");
  Write("/sys/fs/cgroup/cpu/pods/one/cpu.cfs_quota_us", "400000\n");
  Write("/sys/fs/cgroup/cpu/pods/one/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/pods/one/memory.limit_in_bytes", "536870912\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");

  const CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_THAT(limits.cpus, Optional(4));
  EXPECT_THAT(limits.memory_bytes, Optional(536870912));
}

// In a container the mount's root is its own group, but the path is the host's.
TEST_F(MachineTest, APathOfTheHostFallsBackToTheRoot) {
  Write("/proc/self/cgroup", "4:memory:/docker/123\n2:cpu:/docker/123\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");

  const CgroupLimits limits = ReadCgroupLimits(root_);
  EXPECT_THAT(limits.cpus, Optional(3));
  EXPECT_THAT(limits.memory_bytes, Optional(1048576));
}

TEST(Machine, SomethingIsUsable) {
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_GT(UsableMemory(), 0);
}

}  // namespace
}  // namespace posenc::server
