// Calls that get a place, wait for one, or are refused, with a test clock and
// without real calls.

#include "server/scheduling/places.h"

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;

class PlacesTest : public testing::Test {
 protected:
  // A call that records its outcome.
  class Call final : public Waiter {
   public:
    Call(PlacesTest* test, char name) : test_(test), name_(name) {}
    void Resume(const absl::Status& result) override {
      test_->told_.push_back((result.ok() ? "" : "-") + std::string(1, name_));
    }
    Places::Ticket ticket;

   private:
    PlacesTest* const test_;
    const char name_;
  };

  // Returns 's' (served), 'w' (waiting) or 'r' (refused).
  char Enter(Call* call, std::uint64_t party = 1, double in = 100,
             int method = 0) {
    const auto result =
        places_.Enter({method, party, now_ + in}, &call->ticket, call);
    return !result ? 'w' : result->ok() ? 's' : 'r';
  }
  // Serves a single call of the method for this time.
  void Serve(double seconds, int method = 0) {
    Call call(this, '?');
    EXPECT_EQ(Enter(&call, 1, 100, method), 's');
    now_ += seconds;
    places_.Leave(&call.ticket, absl::Seconds(seconds));
  }
  // Occupies every place, and returns their number.
  std::size_t Fill(int method = 0) {
    std::size_t filled = 0;
    while (true) {
      busy_.emplace_back(this, '?');
      if (Enter(&busy_.back(), 99, 100, method) != 's') break;
      ++filled;
    }
    EXPECT_TRUE(places_.StopWaiting(&busy_.back().ticket));
    busy_.pop_back();
    return filled;
  }
  void LeaveOne(bool served = false) {
    places_.Leave(&busy_.front().ticket,
                  served ? std::optional(absl::Seconds(1)) : std::nullopt);
    busy_.pop_front();
  }

  double now_ = 1000;
  std::vector<std::string> told_;
  std::list<Call> busy_;
  Places places_{1, 10, 2, [this] { return now_; }};
};

TEST_F(PlacesTest, ServesOneCallForEachPlaceAndOthersWait) {
  EXPECT_EQ(Fill(), 3u);  // two places for the thread, and one more
  Call a(this, 'a'), b(this, 'b');
  EXPECT_EQ(Enter(&a), 'w');
  EXPECT_EQ(Enter(&b), 'w');
  EXPECT_EQ(places_.state().waiting, 2u);
  LeaveOne();
  EXPECT_THAT(told_, ElementsAre("a"));
  LeaveOne();
  EXPECT_THAT(told_, ElementsAre("a", "b"));
  EXPECT_TRUE(a.ticket.held());
}

TEST_F(PlacesTest, PartiesAreServedInTurn) {
  Fill();
  Call a(this, 'a'), b(this, 'b'), c(this, 'c'), other(this, 'x');
  for (Call* const call : {&a, &b, &c}) EXPECT_EQ(Enter(call, 1), 'w');
  EXPECT_EQ(Enter(&other, 2), 'w');
  for (int i = 0; i < 3; ++i) LeaveOne();
  EXPECT_THAT(told_, ElementsAre("a", "x", "b"));
  EXPECT_TRUE(places_.StopWaiting(&c.ticket));
}

TEST_F(PlacesTest, TheEarliestDeadlineOfAPartyComesFirst) {
  Fill();
  Call late(this, 'l'), early(this, 'e');
  EXPECT_EQ(Enter(&late, 1, 50), 'w');
  EXPECT_EQ(Enter(&early, 1, 40), 'w');
  LeaveOne();
  EXPECT_THAT(told_, ElementsAre("e"));
  EXPECT_TRUE(places_.StopWaiting(&late.ticket));
}

TEST_F(PlacesTest, ACallThatLeavesTheQueueIsNotServed) {
  Fill();
  Call a(this, 'a');
  EXPECT_EQ(Enter(&a), 'w');
  EXPECT_TRUE(places_.StopWaiting(&a.ticket));
  EXPECT_FALSE(places_.StopWaiting(&a.ticket));
  LeaveOne();
  EXPECT_THAT(told_, ElementsAre());
}

TEST_F(PlacesTest, CallsThatCouldNotEndInTimeAreRefused) {
  for (int i = 0; i < 5; ++i) Serve(1);
  Fill();
  Call hurried(this, 'h'), patient(this, 'p');
  EXPECT_EQ(Enter(&hurried, 1, 0.5), 'r') << "it takes a second";
  EXPECT_EQ(Enter(&patient, 1, 10), 'w');
  EXPECT_TRUE(places_.StopWaiting(&patient.ticket));
}

TEST_F(PlacesTest, ACallWhoseWaitIsOverAQuarterOfItsTimeIsRefused) {
  for (int i = 0; i < 5; ++i) Serve(1);
  Fill();
  std::list<Call> waiting;
  for (int i = 0; i < 6; ++i) {
    waiting.emplace_back(this, 'w');
    EXPECT_EQ(Enter(&waiting.back(), 1, 50), 'w');
  }
  // Six calls of a second and the rest of the served calls come before this
  // call, on three places or a few more.
  Call call(this, 'c');
  EXPECT_EQ(Enter(&call, 1, 60), 'w');
  EXPECT_TRUE(places_.StopWaiting(&call.ticket));
  EXPECT_EQ(Enter(&call, 1, 0.1), 'r');
  for (Call& each : waiting) EXPECT_TRUE(places_.StopWaiting(&each.ticket));
}

TEST_F(PlacesTest, WaitingCallsThatCanNoLongerEndInTimeAreRefused) {
  for (int i = 0; i < 5; ++i) Serve(1);
  Fill();
  Call a(this, 'a'), b(this, 'b');
  EXPECT_EQ(Enter(&a, 1, 5), 'w');
  EXPECT_EQ(Enter(&b, 2, 100), 'w');
  now_ += 4.5;
  LeaveOne();
  EXPECT_THAT(told_, ElementsAre("-a", "b"));
  EXPECT_FALSE(a.ticket.held());
}

TEST_F(PlacesTest, WaitingCallsAreLimited) {
  Fill();
  std::list<Call> waiting;
  for (int i = 0; i < 10; ++i) {
    waiting.emplace_back(this, 'w');
    EXPECT_EQ(Enter(&waiting.back()), 'w');
  }
  Call call(this, 'c');
  EXPECT_EQ(Enter(&call), 'r');
  for (Call& each : waiting) EXPECT_TRUE(places_.StopWaiting(&each.ticket));
}

TEST_F(PlacesTest, AnotherPartysQueueDelaysACallByOneTurnOnly) {
  Serve(1);
  EXPECT_EQ(Fill(), 3u);
  std::list<Call> queue;
  for (int i = 0; i < 9; ++i) {
    queue.emplace_back(this, 'q');
    EXPECT_EQ(Enter(&queue.back(), 1), 'w');
  }
  // The call of party 2 waits for the rest of the calls at work and for one
  // call of the queue: 0.5 s. The whole queue takes 3 s.
  Call other(this, 'o');
  EXPECT_EQ(Enter(&other, 2, 3), 'w');
  EXPECT_TRUE(places_.StopWaiting(&other.ticket));
  for (Call& each : queue) EXPECT_TRUE(places_.StopWaiting(&each.ticket));
}

TEST_F(PlacesTest, TheLimitGrowsIfCallsAreNotSlower) {
  Serve(0.1);
  // Calls that wait for their peers take the same time, however many calls
  // there are.
  for (int i = 0; i < 200; ++i) {
    Fill();
    now_ += 0.1;
    while (!busy_.empty()) LeaveOne(true);
  }
  EXPECT_GT(Fill(), 50u);
}

TEST_F(PlacesTest, TheLimitStaysIfNoCallHasToWait) {
  for (int i = 0; i < 200; ++i) Serve(0.1);
  EXPECT_EQ(Fill(), 3u);
}

// The limit is the same as if the calls had left when they were computed.
TEST_F(PlacesTest, TheTimeOfAnUnreadResponseDoesNotCount) {
  for (int i = 0; i < 200; ++i) {
    Fill();
    now_ += 5;
    while (!busy_.empty()) {
      places_.Leave(&busy_.front().ticket, absl::Seconds(0.1),
                    absl::Seconds(4.9));
      busy_.pop_front();
    }
  }
  EXPECT_NEAR(places_.SecondsOf(0), 0.1, 1e-6);
  EXPECT_GT(Fill(), 50u);
}

TEST_F(PlacesTest, TheLimitFallsIfCallsSlowEachOtherDown) {
  Serve(0.1);
  // Calls that share one processor take longer if there are more.
  for (int i = 0; i < 400; ++i) {
    const std::size_t filled = Fill();
    now_ += 0.1 * static_cast<double>(filled);
    while (!busy_.empty()) LeaveOne(true);
  }
  EXPECT_LE(Fill(), 5u);
}

TEST_F(PlacesTest, CheapCallsNeedNoPlace) {
  Serve(5e-6);
  Fill(1);
  Call cheap(this, 'c'), other(this, 'o'), large(this, 'l');
  EXPECT_EQ(Enter(&cheap), 's');
  EXPECT_FALSE(cheap.ticket.held());
  EXPECT_EQ(Enter(&other, 1, 100, 1), 'w') << "not known";
  EXPECT_EQ(places_.Enter({.deadline = now_ + 100, .large = true},
                          &large.ticket, &large),
            std::nullopt);
  for (Call* const call : {&other, &large}) {
    EXPECT_TRUE(places_.StopWaiting(&call->ticket));
  }
  for (int i = 0; i < 100; ++i) {
    places_.Leave(&cheap.ticket, absl::Milliseconds(1));
  }
  EXPECT_EQ(Enter(&cheap), 'w') << "not cheap any more";
  EXPECT_TRUE(places_.StopWaiting(&cheap.ticket));
}

}  // namespace
}  // namespace posenc::server
