// Reused blocks, and memory of responses that is returned when other calls
// claim it.

#include "server/memory/block_pool.h"

#include <sys/resource.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/base/config.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"
#include "server/memory/response_buffers.h"
#include "server/scheduling/admission.h"

namespace posenc::server {
namespace {

constexpr std::size_t kMega = 1 << 20;

TEST(BlockPool, UsesAFreedBlockAgain) {
  BlockPool pool;
  const BlockPool::Block first = pool.Allocate(kMega);
  ASSERT_NE(first.data, nullptr);
  EXPECT_TRUE(first.fresh);
  pool.Free(first);
  EXPECT_EQ(pool.kept(), kMega);
  const BlockPool::Block again = pool.Allocate(kMega - 1);
  EXPECT_EQ(again.data, first.data);
  EXPECT_FALSE(again.fresh);
  EXPECT_EQ(pool.kept(), 0u);
  pool.Free(again);
}

// At most a fifth of a reused block may be unclaimed.
TEST(BlockPool, TakesALargerBlockButNotAMuchLargerOne) {
  BlockPool pool;
  const BlockPool::Block much_larger = pool.Allocate(kMega + kMega / 2);
  const BlockPool::Block larger = pool.Allocate(kMega + kMega / 4);
  pool.Free(much_larger);
  pool.Free(larger);
  const BlockPool::Block block = pool.Allocate(kMega);
  EXPECT_EQ(block.data, larger.data);
  const BlockPool::Block other = pool.Allocate(kMega);
  EXPECT_TRUE(other.fresh);
  pool.Free(block);
  pool.Free(other);
}

TEST(BlockPool, HasNoMoreMappedThanWasUsedAtOnce) {
  BlockPool pool;
  for (const std::size_t size : {8, 1, 64, 2, 16, 65, 4}) {
    const BlockPool::Block block = pool.Allocate(size * kMega);
    EXPECT_LE(pool.mapped(), 65 * kMega);
    pool.Free(block);
  }
  EXPECT_EQ(pool.mapped(), pool.kept());
}

TEST(BlockPool, UnmapsBlocksThatItMayNotKeep) {
  BlockPool pool;
  std::vector<BlockPool::Block> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool.Allocate(kMega));
  for (const BlockPool::Block& block : blocks) pool.Free(block);
  EXPECT_EQ(pool.kept(), 4 * kMega);
  pool.KeepAtMost(4 * kMega);
  EXPECT_EQ(pool.kept(), 4 * kMega);
  pool.KeepAtMost(3 * kMega - 1);
  EXPECT_EQ(pool.kept(), 2 * kMega);
  pool.KeepAtMost(0);
  EXPECT_EQ(pool.mapped(), 0u);
}

TEST(BlockPool, AnImpossibleBlockIsNull) {
  BlockPool pool;
  EXPECT_EQ(pool.Allocate(std::size_t{1} << 60).data, nullptr);
  EXPECT_EQ(pool.mapped(), 0u);
}

std::int64_t Faults() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// With the address sanitizer, faults cannot be compared, because a block's
// shadow pages fault, too.
bool CountsFaults() {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
  return false;
#else
  return true;
#endif
}

// Allocates like a call: claims first.
absl::StatusOr<WritableSlice> Claimed(Admission* admission,
                                      ResponseBuffers* buffers,
                                      std::size_t bytes) {
  Admission::Ticket ticket;
  const auto claim = static_cast<std::int64_t>(bytes);
  EXPECT_EQ(admission->EnterMore(claim, 0, &ticket, nullptr),
            Admission::Entry::kAdmitted);
  return buffers->Allocate(bytes);
}

TEST(ResponseBuffers, FaultsItsPagesInOnce) {
  const auto admission = std::make_shared<Admission>(256 * kMega, 1);
  ResponseBuffers buffers(admission);
  for (int round = 0; round < 4; ++round) {
    const std::int64_t before = Faults();
    {
      absl::StatusOr<WritableSlice> slice =
          Claimed(admission.get(), &buffers, 64 * kMega);
      ASSERT_TRUE(slice.ok());
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slice->data()) % 64, 0u);
      std::memset(slice->data(), round, slice->size());
      EXPECT_EQ(admission->claimed(), 64 * kMega);
    }
    EXPECT_EQ(admission->claimed(), 0);
    // New memory of this size would cause 16384 faults, or 32 with huge pages.
    if (round > 0 && CountsFaults()) {
      EXPECT_LT(Faults() - before, 16) << round;
    }
  }
}

TEST(ResponseBuffers, KeptBlocksFitIntoTheUnclaimedBudget) {
  if (!CountsFaults()) GTEST_SKIP() << "it knows a fresh block by its faults";
  const auto admission = std::make_shared<Admission>(100 * kMega, 1);
  ResponseBuffers buffers(admission);
  const auto fresh = [&] {
    const std::int64_t before = Faults();
    absl::StatusOr<WritableSlice> slice =
        Claimed(admission.get(), &buffers, 60 * kMega);
    EXPECT_TRUE(slice.ok());
    std::memset(slice->data(), 1, slice->size());
    return Faults() - before >= 16;
  };
  EXPECT_TRUE(fresh());
  EXPECT_FALSE(fresh());
  ASSERT_TRUE(admission->TryClaim(40 * kMega));
  EXPECT_FALSE(fresh()) << "there is room for both";
  ASSERT_TRUE(admission->TryClaim(kMega));
  admission->Release(41 * kMega);
  EXPECT_TRUE(fresh()) << "its block was given back when the room was claimed";
}

TEST(ResponseBuffers, MemoryMayOutliveIt) {
  const auto admission = std::make_shared<Admission>(100 * kMega, 1);
  absl::StatusOr<WritableSlice> large, small;
  {
    ResponseBuffers buffers(admission);
    large = Claimed(admission.get(), &buffers, kMega);
    small = Claimed(admission.get(), &buffers, 1);
    ASSERT_TRUE(large.ok() && small.ok());
  }
  std::memset(large->data(), 1, kMega);
  EXPECT_EQ(admission->claimed(), kMega + 1);
  large = absl::UnknownError("freed");
  small = absl::UnknownError("freed");
  EXPECT_EQ(admission->claimed(), 0);
}

}  // namespace
}  // namespace posenc::server
