// The order in which peers and their calls are served.

#include "server/budget/fair_queue.h"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;

class FairQueueTest : public testing::Test {
 protected:
  FairQueue::Call* Add(std::uint64_t peer, double deadline, double cost) {
    calls_.push_back(std::make_unique<FairQueue::Call>());
    FairQueue::Call* const call = calls_.back().get();
    call->peer = peer;
    call->deadline = call->order = deadline;
    call->cost = cost;
    return call;
  }
  void Push(std::uint64_t peer, double deadline, double cost) {
    queue_.Push(Add(peer, deadline, cost), now_);
  }
  // Serves the next call to its end, for as long as it was expected to take.
  FairQueue::Call* Serve() {
    FairQueue::Call* const call = queue_.Front();
    queue_.Remove(call);
    queue_.Start(call, now_);
    now_ += call->cost;
    queue_.End(call, call->cost, now_);
    return call;
  }

  double now_ = 0;
  FairQueue queue_;
  std::vector<std::unique_ptr<FairQueue::Call>> calls_;
};

TEST_F(FairQueueTest, CallsOfOnePeerGoByDeadline) {
  Push(1, 30, 1);
  Push(1, 10, 1);
  Push(1, 20, 1);
  EXPECT_EQ(Serve()->deadline, 10);
  EXPECT_EQ(Serve()->deadline, 20);
  EXPECT_EQ(Serve()->deadline, 30);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.Front(), nullptr);
}

TEST_F(FairQueueTest, PeersGetEqualTimeWhateverTheyAskFor) {
  for (int i = 0; i < 1000; ++i) {
    Push(1, i, 0.4);
    Push(2, i, 0.1);
  }
  std::map<std::uint64_t, double> served;
  while (now_ < 100) {
    const FairQueue::Call* const call = Serve();
    served[call->peer] += call->cost;
  }
  EXPECT_NEAR(served[1], served[2], 0.5);
}

TEST_F(FairQueueTest, ANewPeerGoesBeforeTheRestOfALongQueue) {
  for (int i = 0; i < 100; ++i) Push(1, 0, 1);
  Serve();
  Serve();
  Push(2, 1000, 1);
  EXPECT_EQ(Serve()->peer, 2u);
  EXPECT_EQ(Serve()->peer, 1u);
}

TEST_F(FairQueueTest, APeerWhoWasAwayHasSavedUpNothing) {
  Push(2, 0, 1);
  Serve();
  for (int i = 0; i < 100; ++i) Push(1, 0, 1);
  for (int i = 0; i < 50; ++i) Serve();
  for (int i = 0; i < 10; ++i) Push(2, 0, 1);
  std::map<std::uint64_t, int> served;
  for (int i = 0; i < 10; ++i) ++served[Serve()->peer];
  EXPECT_NEAR(served[1], served[2], 2);
}

TEST_F(FairQueueTest, WhatACallReallyUsedIsWhatItsPeerPays) {
  for (int i = 0; i < 20; ++i) {
    Push(1, 0, 1);
    Push(2, 0, 1);
  }
  std::map<std::uint64_t, int> served;
  for (int i = 0; i < 12; ++i) {
    FairQueue::Call* const call = queue_.Front();
    queue_.Remove(call);
    queue_.Start(call, now_);
    now_ += 1;
    queue_.End(call, call->peer == 1 ? 3 : 1, now_);
    ++served[call->peer];
  }
  EXPECT_EQ(served[1], 3);
  EXPECT_EQ(served[2], 9);
}

TEST_F(FairQueueTest, AheadOfACallIsWhatTheTurnsPutBeforeIt) {
  for (int i = 0; i < 10; ++i) Push(1, i, 1);
  // The peer's own calls by deadline.
  EXPECT_EQ(queue_.Ahead(*Add(1, 4.5, 1)), 5);
  EXPECT_EQ(queue_.Ahead(*Add(1, 100, 1)), 10);
  // Another peer's first call lets one such call of the first go before it.
  EXPECT_EQ(queue_.Ahead(*Add(2, 0, 1)), 1);
  for (int i = 0; i < 3; ++i) Push(2, i, 1);
  EXPECT_EQ(queue_.Ahead(*Add(2, 100, 1)), 3 + 4);
  EXPECT_EQ(queue_.Ahead(*Add(3, 100, 20)), 13) << "no more than waits";
}

TEST_F(FairQueueTest, WhoUsesLittleWhileOthersUseMuchIsLight) {
  EXPECT_FALSE(queue_.Light(1, now_)) << "alone";
  for (int i = 0; i < 100; ++i) {
    Push(1, 0, 0.01);
    Serve();
  }
  EXPECT_TRUE(queue_.Light(2, now_));
  EXPECT_FALSE(queue_.Light(1, now_));
  // What it waits for counts.
  Push(2, 0, 0.8);
  EXPECT_FALSE(queue_.Light(2, now_));
}

// Nine peers that use a little each, and one that uses twice as much as an
// equal share and more.
TEST_F(FairQueueTest, WhoUsesLessThanAnEqualShareIsLightBesideAHeavyPeer) {
  for (int i = 0; i < 50; ++i) {
    for (std::uint64_t peer = 2; peer <= 10; ++peer) {
      Push(peer, 0, 0.001);
      Serve();
    }
    EXPECT_FALSE(queue_.Light(2, now_)) << "all are equal";
  }
  for (int i = 0; i < 50; ++i) {
    Push(1, 0, 0.01);
    Serve();
  }
  for (std::uint64_t peer = 2; peer <= 10; ++peer) {
    EXPECT_TRUE(queue_.Light(peer, now_)) << peer;
  }
  EXPECT_FALSE(queue_.Light(1, now_));
}

// Of 32 peers half have gone, and one of the others has used twice an equal
// share of all 32: the rest of them use more than such a share.
TEST_F(FairQueueTest, WhoUsesMoreThanAnEqualShareIsNotLightHoweverManyPeers) {
  for (int i = 0; i < 20; ++i) {
    for (std::uint64_t peer = 0; peer < 32; ++peer) {
      if (peer < 16 && i > 10) continue;
      Push(peer, 0, 0.001);
      Serve();
    }
  }
  for (int i = 0; i < 20; ++i) {
    Push(31, 0, 0.001);
    Serve();
  }
  for (std::uint64_t peer = 16; peer < 32; ++peer) {
    EXPECT_FALSE(queue_.Light(peer, now_)) << peer;
  }
  EXPECT_TRUE(queue_.Light(0, now_));
}

TEST_F(FairQueueTest, EqualPeersAreNotLight) {
  for (int i = 0; i < 200; ++i) {
    for (std::uint64_t peer = 0; peer < 10; ++peer) {
      Push(peer, 0, 0.001);
      Serve();
    }
  }
  for (std::uint64_t peer = 0; peer < 10; ++peer) {
    EXPECT_FALSE(queue_.Light(peer, now_)) << peer;
  }
}

TEST_F(FairQueueTest, PeersWhoStayAwayAreForgotten) {
  for (int i = 0; i < 10; ++i) Push(7, 0, 0.1);
  while (!queue_.empty()) Serve();
  EXPECT_TRUE(queue_.Light(8, now_));
  now_ += 60;
  EXPECT_FALSE(queue_.Light(8, now_)) << "nobody else is there";
}

}  // namespace
}  // namespace posenc::server
