// Ten thousand random rotations: the bytes do not depend on the instruction
// set, the alignment, the place in the batch or the order of memory. A rotation
// in place gives the same bytes, too. rotate_test.cc checks that they are
// right.

#include "tests/fixtures/core/random_jobs.h"

#include <vector>

#include "core/simd/dispatch.h"
#include "gtest/gtest.h"

namespace posenc::simd {
namespace {

using reference::PlainWay;
using reference::RandomJob;
using reference::Way;

constexpr int kJobs = 10000;
// Jobs are run in sixteenths, so that ctest can run these in parallel.
class RandomJobsTest : public testing::TestWithParam<int> {};

TEST_P(RandomJobsTest, BytesDependOnTheNumbersAlone) {
  for (int i = GetParam(); i < kJobs; i += 16) {
    RandomJob job(static_cast<unsigned>(i));
    const std::vector<unsigned char> expected =
        job.Run(PlainWay(*SupportedKernels().front()));
    for (const KernelTable* kernels : SupportedKernels()) {
      for (int again = 0; again < 2; ++again) {
        const Way way = job.RandomWay(kernels);
        ASSERT_EQ(job.Run(way), expected) << i << ": " << job.Name(way);
      }
    }
  }
}

// Repeats the test above with tensors of which several pages are processed at
// once; few of the jobs above have such tensors.
TEST_P(RandomJobsTest, BytesOfSomePagesDependOnTheNumbersAlone) {
  for (int i = GetParam(); i < kJobs / 10; i += 16) {
    RandomJob job(static_cast<unsigned>(i), true);
    const std::vector<unsigned char> expected =
        job.Run(PlainWay(*SupportedKernels().front()));
    for (const KernelTable* kernels : SupportedKernels()) {
      for (const Memory memory : {Memory::kCold, Memory::kStreamed}) {
        Way way = job.RandomWay(kernels);
        way.memory = memory;
        way.by_pages = true;
        ASSERT_EQ(job.Run(way), expected) << i << ": " << job.Name(way);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sixteenths, RandomJobsTest, testing::Range(0, 16));

}  // namespace
}  // namespace posenc::simd
