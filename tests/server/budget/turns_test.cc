// Who is served, waits or is refused, on clocks that the test turns.

#include "server/budget/turns.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/eventually.h"

namespace posenc::server {
namespace {

using Entry = Turns::Entry;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kMethods = 2;
constexpr int kKind = 0;
constexpr int kCheapKind = 5;

// One thread: 3 calls in service, or 8 MiB and 20 ms of them.
constexpr int kSlots = 3;
constexpr std::int64_t kLarge = 4 << 20;

class TestWaiter final : public Turns::Waiter {
 public:
  explicit TestWaiter(std::vector<std::string>* told = nullptr,
                      std::string name = "")
      : told_(told), name_(std::move(name)) {}
  void TurnCame() override { told_->push_back(name_); }
  void TurnLost() override { told_->push_back(name_ + " lost"); }

 private:
  std::vector<std::string>* const told_;
  const std::string name_;
};

// A number of seconds that other threads may read.
class Turned {
 public:
  explicit Turned(double seconds) : seconds_(seconds) {}
  double load() const { return seconds_.load(); }
  operator double() const { return load(); }  // NOLINT: reads as a number
  void operator+=(double more) { seconds_.store(load() + more); }

 private:
  std::atomic<double> seconds_;
};

class TurnsTest : public testing::Test {
 protected:
  // The server's time stands still unless a test lets it pass.
  TurnsTest()
      : turns_(1, 100, kMethods,
               {[this] { return now_.load(); },
                [this] { return processor_.load(); }}) {}

  static Turns::Request Request(double deadline, std::uint64_t peer = 1,
                                int kind = kKind) {
    Turns::Request request;
    request.kind = kind;
    request.peer = peer;
    request.deadline = deadline;
    return request;
  }

  // The end of a call that was computed all the time.
  void Leave(Turns::Waiter* waiter, std::int64_t moved) {
    turns_.Leave(waiter, moved, 1e9);
  }

  // One call of the kind, of so many seconds and bytes, alone.
  void Learn(int kind, double share, std::int64_t bytes = kLarge) {
    for (int i = 0; i < 40; ++i) {
      TestWaiter waiter;
      Turns::Request request = Request(now_ + 300, 999, kind);
      if (turns_.Enter(request, &waiter) != Entry::kServed) continue;
      processor_ += share;
      now_ += share;
      Leave(&waiter, bytes);
    }
    now_ += 100;  // the peer is forgotten
  }

  // At most one call in 16 is measured, so of two in a row one takes no turn.
  bool NeedsNoTurn(int kind) {
    int without = 0;
    for (int i = 0; i < 2; ++i) {
      TestWaiter waiter;
      if (turns_.Enter(Request(now_ + 300, 999, kind), &waiter) ==
          Entry::kNotNeeded) {
        ++without;
      } else {
        Leave(&waiter, Turns::kFailed);
      }
    }
    return without > 0;
  }

  // Fills the places with calls of `peer`.
  std::vector<std::unique_ptr<TestWaiter>> FillPlaces(std::uint64_t peer = 1) {
    std::vector<std::unique_ptr<TestWaiter>> served;
    for (int i = 0; i < kSlots; ++i) {
      served.push_back(std::make_unique<TestWaiter>());
      EXPECT_EQ(turns_.Enter(Request(now_ + 300, peer), served.back().get()),
                Entry::kServed);
    }
    return served;
  }

  // The ticker reads them on its own thread.
  Turned now_{1000}, processor_{0};
  Turns turns_;
};

TEST_F(TurnsTest, AFewAreServedAndTheOthersWait) {
  Learn(kKind, 0.001);
  std::vector<std::string> told;
  auto served = FillPlaces();
  TestWaiter a(&told, "a"), b(&told, "b");
  EXPECT_EQ(turns_.Enter(Request(now_ + 4), &a), Entry::kWaiting);
  EXPECT_EQ(turns_.Enter(Request(now_ + 3), &b), Entry::kWaiting);
  EXPECT_EQ(turns_.state().waiting, 2u);
  Leave(served[0].get(), kLarge);
  EXPECT_THAT(told, ElementsAre("b")) << "the earlier deadline goes first";
  Leave(served[1].get(), kLarge);
  EXPECT_THAT(told, ElementsAre("b", "a"));
  for (int i = 2; i < kSlots; ++i) Leave(served[i].get(), kLarge);
  Leave(&a, kLarge);
  Leave(&b, kLarge);
  EXPECT_EQ(turns_.state().in_service, 0u);
}

TEST_F(TurnsTest, SmallCallsAreServedBeyondThePlaces) {
  Learn(kKind, 0.000155, 64 << 10);
  std::vector<std::unique_ptr<TestWaiter>> served = FillPlaces();
  for (int i = kSlots; i < 128; ++i) {  // 8 MiB
    served.push_back(std::make_unique<TestWaiter>());
    EXPECT_EQ(turns_.Enter(Request(now_ + 300), served.back().get()),
              Entry::kServed)
        << i;
  }
  std::vector<std::string> told;
  TestWaiter next(&told, "next");
  EXPECT_EQ(turns_.Enter(Request(now_ + 300), &next), Entry::kWaiting);
  EXPECT_TRUE(turns_.StopWaiting(&next));
  for (const auto& waiter : served) Leave(waiter.get(), 64 << 10);
}

TEST_F(TurnsTest, BeyondThePlacesNoMoreThan20MsOfWorkAreServed) {
  Learn(kKind, 0.00201, 1024);
  std::vector<std::unique_ptr<TestWaiter>> served = FillPlaces();
  for (int i = kSlots; i < 10; ++i) {
    served.push_back(std::make_unique<TestWaiter>());
    EXPECT_EQ(turns_.Enter(Request(now_ + 300), served.back().get()),
              Entry::kServed)
        << i;
  }
  TestWaiter next;
  EXPECT_EQ(turns_.Enter(Request(now_ + 300), &next), Entry::kWaiting);
  EXPECT_TRUE(turns_.StopWaiting(&next));
  for (const auto& waiter : served) Leave(waiter.get(), 1024);
}

TEST_F(TurnsTest, WhoCouldNotEndInTimeIsRefusedAtOnce) {
  Learn(kKind, 0.01);
  auto served = FillPlaces();  // 30 ms, half of them still to come
  TestWaiter waiter;
  EXPECT_FALSE(turns_.Refuses(Request(now_ + 0.11)));
  EXPECT_TRUE(turns_.Refuses(Request(now_ + 0.09)));
  EXPECT_EQ(turns_.Enter(Request(now_ + 0.09), &waiter), Entry::kRefused);
  EXPECT_EQ(turns_.state().refused, 2);
  for (const auto& each : served) Leave(each.get(), kLarge);
}

TEST_F(TurnsTest, RefusingIsNoPartOfWhatACallCosts) {
  for (int i = 0; i < 40; ++i) {
    TestWaiter waiter;
    ASSERT_EQ(turns_.Enter(Request(now_ + 300), &waiter), Entry::kServed);
    processor_ += 0.01 + 0.09;
    turns_.AddRefusing(0.09);
    Leave(&waiter, kLarge);
  }
  EXPECT_NEAR(turns_.state().shares[kKind], 0.01, 1e-6);
}

TEST_F(TurnsTest, CallsWaitForRefusing) {
  Learn(kKind, 0.01);
  auto served = FillPlaces();
  EXPECT_FALSE(turns_.Refuses(Request(now_ + 0.11)));
  now_ += 1;
  turns_.AddRefusing(0.5);
  EXPECT_TRUE(turns_.Refuses(Request(now_ + 0.11)));
  EXPECT_FALSE(turns_.Refuses(Request(now_ + 0.22)));
  for (const auto& each : served) Leave(each.get(), kLarge);
}

TEST_F(TurnsTest, WhoseDeadlineIsOverIsRefusedThoughThereIsRoom) {
  Learn(kKind, 0.01);
  TestWaiter waiter;
  EXPECT_TRUE(turns_.Refuses(Request(now_ - 0.001)));
  EXPECT_EQ(turns_.Enter(Request(now_ - 0.001), &waiter), Entry::kRefused);
}

TEST_F(TurnsTest, AnIdleServerTriesWhateverItBelieves) {
  Learn(kKind, 10);
  TestWaiter waiter;
  EXPECT_FALSE(turns_.Refuses(Request(now_ + 0.1)));
  EXPECT_EQ(turns_.Enter(Request(now_ + 0.1), &waiter), Entry::kServed);
  Leave(&waiter, kLarge);
}

TEST_F(TurnsTest, OneHugeCallDoesNotMakeItsKindExpensive) {
  Learn(kKind, 0.0005);
  TestWaiter huge;
  ASSERT_EQ(turns_.Enter(Request(now_ + 300), &huge), Entry::kServed);
  processor_ += 100;
  Leave(&huge, std::int64_t{1} << 31);
  EXPECT_LT(turns_.state().shares[0], 0.001);
}

TEST_F(TurnsTest, ACallThatWasNotWorkedOnTellsNothingOfItsKind) {
  Learn(kKind, 0.0005);
  const double before = turns_.state().shares[0];
  const auto leave = [this](std::int64_t moved) {
    TestWaiter waiter;
    ASSERT_EQ(turns_.Enter(Request(now_ + 300), &waiter), Entry::kServed);
    processor_ += 0.1;  // others were, meanwhile
    Leave(&waiter, moved);
  };
  leave(Turns::kNotWorkedOn);
  EXPECT_EQ(turns_.state().shares[0], before);
  leave(Turns::kFailed);
  EXPECT_GT(turns_.state().shares[0], before);
}

TEST_F(TurnsTest, TheFirstCallOfAKindThatWasNotWorkedOnIsNotTheLast) {
  const int kind = CallCosts::KindOf(1, 1 << 20);
  for (int i = 0; i < 2; ++i) {
    const auto served = FillPlaces();
    TestWaiter first;
    ASSERT_EQ(turns_.Enter(Request(now_ + 0.001, 1, kind), &first),
              Entry::kServed)
        << "nothing is known of it";
    Leave(&first, Turns::kNotWorkedOn);
    for (const auto& each : served) Leave(each.get(), kLarge);
  }
}

// The server works for others meanwhile.
TEST_F(TurnsTest, StalledSendersDoNotMakeTheirKindExpensive) {
  Learn(kKind, 0.0005, 1 << 20);
  for (int i = 0; i < 100; ++i) {
    TestWaiter stalled;
    ASSERT_EQ(turns_.Enter(Request(now_ + 300), &stalled), Entry::kServed);
    now_ += 20;
    processor_ += 10;
    turns_.Leave(&stalled, Turns::kFailed, 0);
  }
  EXPECT_LT(turns_.state().shares[0], 0.0011);  // 1 MiB at 1 GB/s
}

TEST_F(TurnsTest, SlowLinesDoNotMakeTheirKindExpensive) {
  Learn(kKind, 0.0005, 1 << 20);
  for (int i = 0; i < 100; ++i) {
    TestWaiter slow;
    ASSERT_EQ(turns_.Enter(Request(now_ + 300), &slow), Entry::kServed);
    now_ += 20;
    processor_ += 10;
    turns_.Leave(&slow, 1 << 20, 0.0005);
  }
  // Computing, 1 ms, and 1 MiB at 200 MB/s.
  EXPECT_LT(turns_.state().shares[0], 0.0068);
}

TEST_F(TurnsTest, CallsThatFailWhileTheyAreComputedAreLearnedFrom) {
  Learn(kKind, 0.0005, 1 << 20);
  for (int i = 0; i < 300; ++i) {
    TestWaiter computed;
    ASSERT_EQ(turns_.Enter(Request(now_ + 300), &computed), Entry::kServed);
    now_ += 0.2;
    processor_ += 0.2;
    turns_.Leave(&computed, Turns::kFailed, 0.2);
  }
  EXPECT_GT(turns_.state().shares[0], 0.15);
}

TEST_F(TurnsTest, ACallThatIsNotRefusableWaitsAsLongAsItsDeadlineAllows) {
  Learn(kKind, 0.01);
  auto served = FillPlaces();
  std::vector<std::string> told;
  TestWaiter waiter(&told, "step");
  Turns::Request request = Request(now_ + 0.05);
  request.refusable = false;
  EXPECT_EQ(turns_.Enter(request, &waiter), Entry::kWaiting);
  now_ += 0.04;
  Leave(served[0].get(), kLarge);
  EXPECT_THAT(told, ElementsAre("step lost"));
  for (int i = 1; i < kSlots; ++i) Leave(served[i].get(), kLarge);
}

TEST_F(TurnsTest, ABurstMayWaitButNotBehindAStandingQueue) {
  Learn(kKind, 0.0099);
  auto served = FillPlaces();
  std::vector<std::string> told;
  std::vector<std::unique_ptr<TestWaiter>> burst;
  int waiting = 0;
  for (int i = 0; i < 20; ++i) {
    burst.push_back(std::make_unique<TestWaiter>(&told, "burst"));
    if (turns_.Enter(Request(now_ + 2), burst.back().get()) ==
        Entry::kWaiting) {
      ++waiting;
    }
  }
  // 100 ms: nearly 10 of the call's own, 15 of those in service, 75 of those
  // before it.
  EXPECT_EQ(waiting, 8);
  now_ += 0.26;
  EXPECT_TRUE(turns_.Refuses(Request(now_ + 2)));
  for (int i = 0; i < kSlots; ++i) Leave(served[i].get(), kLarge);
  EXPECT_EQ(told.size(), 3u);
  // 5 ms: nobody waits any more for a place behind others.
  EXPECT_TRUE(turns_.Refuses(Request(now_ + 2)));
  // A server that was halted for a while has refused nobody, and is as full.
  now_ += 1;
  EXPECT_TRUE(turns_.Refuses(Request(now_ + 2)));
  for (int i = 0; i < waiting; ++i) Leave(burst[i].get(), kLarge);
  now_ += 1;
  served = FillPlaces();
  EXPECT_FALSE(turns_.Refuses(Request(now_ + 2))) << "the queue is forgotten";
  for (const auto& each : served) Leave(each.get(), kLarge);
}

// A client's 5 s are a little less when the call comes. It may wait for a tenth
// of them, however long the queue has been standing.
TEST_F(TurnsTest, ACallWithFiveSecondsWaitsBehindAStandingQueue) {
  Learn(kKind, 0.0099);
  auto served = FillPlaces();
  std::vector<std::string> told;
  TestWaiter first(&told, "first"), second(&told, "second");
  EXPECT_EQ(turns_.Enter(Request(now_ + 4.99), &first), Entry::kWaiting);
  now_ += 0.26;
  EXPECT_TRUE(turns_.Refuses(Request(now_ + 4.4)));
  EXPECT_EQ(turns_.Enter(Request(now_ + 4.99), &second), Entry::kWaiting);
  for (const auto& each : served) Leave(each.get(), kLarge);
  EXPECT_THAT(told, ElementsAre("first", "second"));
  Leave(&first, kLarge);
  Leave(&second, kLarge);
}

TEST_F(TurnsTest, CheapCallsTakeNoTurnButAreMeasured) {
  Learn(kCheapKind, 20e-6, 100);
  TestWaiter cheap;
  int measured = 0;
  auto served = FillPlaces();
  for (int i = 0; i < 160; ++i) {
    const Entry entry =
        turns_.Enter(Request(now_ + 300, 1, kCheapKind), &cheap);
    ASSERT_THAT(entry, testing::AnyOf(Entry::kNotNeeded, Entry::kServed));
    if (entry == Entry::kNotNeeded) continue;
    ++measured;
    Leave(&cheap, 100);
  }
  EXPECT_EQ(measured, 10);
  EXPECT_FALSE(turns_.Refuses(Request(now_ + 0.001, 1, kCheapKind)));
  for (const auto& each : served) Leave(each.get(), kLarge);
}

TEST_F(TurnsTest, CallsThatMoveManyBytesAreNotCheap) {
  Learn(kCheapKind, 20e-6, 256 << 10);
  TestWaiter large;
  EXPECT_EQ(turns_.Enter(Request(now_ + 300, 1, kCheapKind), &large),
            Entry::kServed);
  Leave(&large, 256 << 10);
  EXPECT_EQ(turns_.Enter(Request(now_ + 300, 1, kCheapKind), &large),
            Entry::kServed);
  Leave(&large, 256 << 10);
}

TEST_F(TurnsTest, AKindThatIsRefusedIsNotCheapAtOnce) {
  Learn(kCheapKind, 0.001, 100);
  auto served = FillPlaces();
  EXPECT_TRUE(turns_.Refuses(Request(now_ + 0.001, 1, kCheapKind)));
  for (const auto& each : served) Leave(each.get(), kLarge);
  TestWaiter quick;
  const auto end_one = [&] {
    processor_ += 20e-6;
    now_ += 20e-6;
    Leave(&quick, 100);
  };
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(turns_.Enter(Request(now_ + 300, 1, kCheapKind), &quick),
              Entry::kServed);
    end_one();
  }
  now_ += 1.1;
  EXPECT_EQ(turns_.Enter(Request(now_ + 300, 1, kCheapKind), &quick),
            Entry::kServed);
  end_one();
  EXPECT_EQ(turns_.Enter(Request(now_ + 300, 1, kCheapKind), &quick),
            Entry::kNotNeeded);
}

TEST_F(TurnsTest, ACheapKindStaysCheapUntilItCostsMuchMore) {
  Learn(kCheapKind, 20e-6, 100);
  EXPECT_TRUE(NeedsNoTurn(kCheapKind));
  for (int i = 0; i < 40; ++i) Learn(kCheapKind, 300e-6, 100);
  EXPECT_GT(turns_.state().shares[0], 250e-6);
  EXPECT_TRUE(NeedsNoTurn(kCheapKind));
  for (int i = 0; i < 40; ++i) Learn(kCheapKind, 0.005, 100);
  EXPECT_FALSE(NeedsNoTurn(kCheapKind));
  Learn(kCheapKind, 300e-6, 100);
  EXPECT_FALSE(NeedsNoTurn(kCheapKind));
  for (int i = 0; i < 40; ++i) Learn(kCheapKind, 20e-6, 100);
  EXPECT_TRUE(NeedsNoTurn(kCheapKind));
}

// The real ticker ends the lease; the clock of the test says when.
TEST_F(TurnsTest, WhoWaitsForHisPeerLosesHisPlaceToThoseWhoWait) {
  Learn(kKind, 0.001);
  auto stalled = FillPlaces();
  struct Told final : Turns::Waiter {
    void TurnCame() override { came.store(true); }
    void TurnLost() override {}
    std::atomic<bool> came{false};
  } next;
  EXPECT_EQ(turns_.Enter(Request(now_ + 20), &next), Entry::kWaiting);
  EXPECT_FALSE(next.came.load());
  now_ += 10;
  test::Eventually([&] { return next.came.load(); });
  EXPECT_TRUE(next.came.load());
  Leave(&next, kLarge);
  for (const auto& each : stalled) Leave(each.get(), kLarge);
  EXPECT_EQ(turns_.state().in_service, 0u);
}

TEST_F(TurnsTest, WhoIsWorkedOnKeepsHisPlace) {
  Learn(kKind, 0.001);
  auto served = FillPlaces();
  served[0]->SetBusy(true);
  served[1]->SetBusy(true);
  struct Told final : Turns::Waiter {
    void TurnCame() override { came.store(true); }
    void TurnLost() override {}
    std::atomic<bool> came{false};
  } next, last;
  EXPECT_EQ(turns_.Enter(Request(now_ + 20), &next), Entry::kWaiting);
  EXPECT_EQ(turns_.Enter(Request(now_ + 200), &last), Entry::kWaiting);
  next.SetBusy(true);
  now_ += 10;
  test::Eventually([&] { return next.came.load(); });
  EXPECT_TRUE(next.came.load()) << "one waited for his peer";
  EXPECT_FALSE(last.came.load());
  EXPECT_EQ(turns_.state().in_service, 3u);
  served[0]->SetBusy(false);
  now_ += 10;
  test::Eventually([&] { return last.came.load(); });
  EXPECT_TRUE(last.came.load());
  for (const auto& each : served) Leave(each.get(), kLarge);
  Leave(&next, kLarge);
  Leave(&last, kLarge);
  EXPECT_EQ(turns_.state().in_service, 0u);
}

TEST_F(TurnsTest, APeerWhoUsesLittleIsNotRefusedForTheQueueOfAnother) {
  Learn(kKind, 0.003);
  std::vector<std::string> told;
  // One peer keeps the server busy for a while.
  for (int i = 0; i < 300; ++i) {
    TestWaiter busy;
    ASSERT_EQ(turns_.Enter(Request(now_ + 300, 1), &busy), Entry::kServed);
    processor_ += 0.003;
    now_ += 0.003;
    Leave(&busy, kLarge);
  }
  auto served = FillPlaces(1);
  std::vector<std::unique_ptr<TestWaiter>> queue;
  for (int i = 0; i < 50; ++i) {
    queue.push_back(std::make_unique<TestWaiter>(&told, "heavy"));
    EXPECT_EQ(turns_.Enter(Request(now_ + 100, 1), queue.back().get()),
              Entry::kWaiting);
  }
  TestWaiter light(&told, "light");
  EXPECT_FALSE(turns_.Refuses(Request(now_ + 1, 2)));
  EXPECT_EQ(turns_.Enter(Request(now_ + 1, 2), &light), Entry::kServed);
  EXPECT_TRUE(light.light());
  EXPECT_FALSE(queue[0]->light());
  EXPECT_THAT(told, IsEmpty());
  for (const auto& each : queue) EXPECT_TRUE(turns_.StopWaiting(each.get()));
  Leave(&light, kLarge);
  for (const auto& each : served) Leave(each.get(), kLarge);
}

TEST_F(TurnsTest, NoMoreWaitThanMayWait) {
  Learn(kKind, 0.001);
  turns_.SetMaxWaiting(1);
  auto served = FillPlaces();
  std::vector<std::string> told;
  TestWaiter first(&told, "first"), second(&told, "second");
  EXPECT_EQ(turns_.Enter(Request(now_ + 300), &first), Entry::kWaiting);
  EXPECT_EQ(turns_.Enter(Request(now_ + 300), &second), Entry::kRefused);
  EXPECT_TRUE(turns_.StopWaiting(&first));
  EXPECT_FALSE(turns_.StopWaiting(&first));
  for (const auto& each : served) Leave(each.get(), kLarge);
  EXPECT_THAT(told, IsEmpty());
}

}  // namespace
}  // namespace posenc::server
