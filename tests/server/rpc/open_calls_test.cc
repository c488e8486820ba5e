// Who may begin a call: by connection, and in all.

#include "server/rpc/open_calls.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace posenc::server {
namespace {

// Places that a connection gets, up to `most`.
std::vector<OpenCalls::Place> Fill(OpenCalls* calls, std::uint64_t connection,
                                   int most) {
  std::vector<OpenCalls::Place> places;
  while (static_cast<int>(places.size()) < most) {
    OpenCalls::Place place = calls->Enter(connection);
    if (place.empty()) break;
    places.push_back(std::move(place));
  }
  return places;
}

TEST(OpenCallsTest, AConnectionHasItsLimitAndOthersTheirs) {
  OpenCalls calls(100);
  std::vector<OpenCalls::Place> first = Fill(&calls, 1, 1000);
  EXPECT_EQ(first.size(), 264u);
  EXPECT_EQ(Fill(&calls, 2, 1000).size(), 264u);
  first.pop_back();
  EXPECT_EQ(Fill(&calls, 1, 1000).size(), 1u);
}

TEST(OpenCallsTest, APlaceIsGivenBackOnce) {
  OpenCalls calls(1);
  {
    OpenCalls::Place place = calls.Enter(1);
    OpenCalls::Place moved = std::move(place);
    EXPECT_FALSE(moved.empty());
  }
  EXPECT_EQ(Fill(&calls, 1, 1000).size(), 66u);
}

// Once there are too many in all, who has less than a share still gets in.
TEST(OpenCallsTest, PastTheLimitOfAllConnectionsHaveShares) {
  constexpr int kGreedy = 4;
  OpenCalls calls(OpenCalls::kMostInAll / kGreedy / 2 - 32);
  std::vector<std::vector<OpenCalls::Place>> greedy;
  for (int i = 0; i < kGreedy; ++i) {
    greedy.push_back(Fill(&calls, i, OpenCalls::kMostInAll));
    EXPECT_EQ(greedy.back().size(), OpenCalls::kMostInAll / kGreedy);
  }
  const auto late = Fill(&calls, 100, OpenCalls::kMostInAll);
  EXPECT_EQ(late.size(), OpenCalls::kMostInAll / (kGreedy + 1));
  EXPECT_TRUE(calls.Enter(0).empty());
  greedy.clear();
  EXPECT_FALSE(calls.Enter(0).empty());
}

}  // namespace
}  // namespace posenc::server
