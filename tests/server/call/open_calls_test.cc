// Limits of open calls: by connection, and in total.

#include "server/call/open_calls.h"

#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace posenc::server {
namespace {

// Returns the slots that a connection gets, up to `most`.
std::vector<OpenCalls::Slot> Fill(OpenCalls* calls, std::uint64_t connection,
                                  int most, bool* far = nullptr) {
  bool unused = false;
  if (far == nullptr) far = &unused;
  std::vector<OpenCalls::Slot> slots;
  while (static_cast<int>(slots.size()) < most) {
    OpenCalls::Slot slot = calls->Open(connection, false, far);
    if (slot.empty()) break;
    slots.push_back(std::move(slot));
  }
  return slots;
}

TEST(OpenCallsTest, AConnectionHasItsLimitAndOthersTheirs) {
  OpenCalls calls(100);
  bool far = false;
  std::vector<OpenCalls::Slot> first = Fill(&calls, 1, 1000, &far);
  EXPECT_EQ(first.size(), 264u);
  EXPECT_TRUE(far);
  EXPECT_EQ(Fill(&calls, 2, 1000).size(), 264u);
  first.pop_back();
  EXPECT_EQ(Fill(&calls, 1, 1000).size(), 1u);
}

TEST(OpenCallsTest, ASlotIsGivenBackOnce) {
  OpenCalls calls(1);
  {
    bool far = false;
    OpenCalls::Slot slot = calls.Open(1, false, &far);
    OpenCalls::Slot moved = std::move(slot);
    EXPECT_FALSE(moved.empty());
  }
  EXPECT_EQ(Fill(&calls, 1, 1000).size(), 66u);
}

// Past the total limit, a connection with less than its share still gets a
// slot.
TEST(OpenCallsTest, PastTheLimitOfAllConnectionsHaveShares) {
  constexpr int kGreedy = 4;
  OpenCalls calls(OpenCalls::kMostInAll / kGreedy / 2 - 32);
  std::vector<std::vector<OpenCalls::Slot>> greedy;
  for (int i = 0; i < kGreedy; ++i) {
    greedy.push_back(Fill(&calls, i, OpenCalls::kMostInAll));
    EXPECT_EQ(greedy.back().size(), OpenCalls::kMostInAll / kGreedy);
  }
  bool far = true;
  const auto late = Fill(&calls, 100, OpenCalls::kMostInAll, &far);
  EXPECT_EQ(late.size(), OpenCalls::kMostInAll / (kGreedy + 1));
  EXPECT_FALSE(far) << "it kept to its limit";
  EXPECT_TRUE(calls.Open(0, false, &far).empty());
  greedy.clear();
  EXPECT_FALSE(calls.Open(0, false, &far).empty());
}

TEST(OpenCallsTest, ManyThreadsEnterAndLeave) {
  constexpr int kThreads = 4, kRounds = 2000;
  OpenCalls calls(1);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&calls, i] {
      for (int round = 0; round < kRounds; ++round) {
        bool far = false;
        const OpenCalls::Slot own = calls.Open(i + 1, false, &far);
        const OpenCalls::Slot common = calls.Open(0, false, &far);
        EXPECT_FALSE(own.empty());
        EXPECT_FALSE(common.empty());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i <= kThreads; ++i) {
    EXPECT_EQ(Fill(&calls, i, 1000).size(), 66u);
  }
}

}  // namespace
}  // namespace posenc::server
