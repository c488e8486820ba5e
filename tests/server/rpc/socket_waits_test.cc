// How long calls are taken to have waited, on a clock that the test turns.

#include "server/rpc/socket_waits.h"

#include <chrono>

#include "gtest/gtest.h"

namespace posenc::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SocketWaitsTest : public testing::Test {
 protected:
  // Calls of a connection that are taken together, each in 1 ms. What the last
  // may have waited.
  SocketWaits::Clock::duration Read(int connection, int calls) {
    SocketWaits::Clock::duration waited{0};
    for (int i = 0; i < calls; ++i) {
      waited = waits_.Take(1000 + connection, now_);
      now_ += milliseconds(1);
    }
    return waited;
  }

  SocketWaits::Clock::time_point now_{seconds(1000)};
  SocketWaits waits_{now_};
};

TEST_F(SocketWaitsTest, ACallWaitsWhileOtherConnectionsAreRead) {
  EXPECT_EQ(Read(0, 6), milliseconds(0));
  EXPECT_EQ(Read(1, 7), milliseconds(0));
  EXPECT_EQ(Read(2, 8), milliseconds(0));
  // From the sixth call to this one: 7 and 8 calls, and the step itself.
  EXPECT_EQ(Read(0, 6), milliseconds(16));
}

TEST_F(SocketWaitsTest, TheShortestGapCounts) {
  Read(0, 6);
  Read(1, 6);
  now_ += milliseconds(50);  // both callers paused
  EXPECT_EQ(Read(0, 6), milliseconds(57));
  EXPECT_EQ(Read(1, 6), milliseconds(57));
  EXPECT_EQ(Read(0, 6), milliseconds(7));
  now_ += milliseconds(20);
  EXPECT_EQ(Read(1, 6), milliseconds(7));
}

TEST_F(SocketWaitsTest, AGapAfterFewCallsIsTheirCallers) {
  Read(0, 4);
  Read(1, 4);
  EXPECT_EQ(Read(0, 4), milliseconds(0));
  EXPECT_EQ(Read(1, 4), milliseconds(0));
}

TEST_F(SocketWaitsTest, CallsOfOneConnectionAreNotSeenToWait) {
  EXPECT_EQ(Read(0, 20), milliseconds(0));
  now_ += milliseconds(20);
  EXPECT_EQ(Read(0, 20), milliseconds(0));
}

TEST_F(SocketWaitsTest, NobodyHasWaitedOnceTheSocketsWereEmpty) {
  Read(0, 6);
  Read(1, 6);
  EXPECT_GT(Read(0, 6), milliseconds(0));
  waits_.CatchUp(now_);
  EXPECT_EQ(waits_.caught_up(), now_);
  EXPECT_EQ(Read(1, 6), milliseconds(0));
  EXPECT_EQ(Read(0, 6), milliseconds(0)) << "the gap is from before";
  EXPECT_EQ(Read(1, 6), milliseconds(7));
}

TEST_F(SocketWaitsTest, WhatWasSeenIsBelievedForAWhile) {
  Read(0, 6);
  Read(1, 6);
  ASSERT_EQ(Read(0, 1), milliseconds(7));
  now_ += milliseconds(98);
  EXPECT_EQ(Read(0, 1), milliseconds(7));
  now_ += milliseconds(2);
  EXPECT_EQ(Read(0, 1), milliseconds(0));
}

}  // namespace
}  // namespace posenc::server
