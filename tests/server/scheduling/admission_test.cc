// Claims on the budget that are admitted, wait, or are refused, on one thread
// and without calls.

#include "server/scheduling/admission.h"

#include <cstdint>
#include <list>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fixtures/eventually.h"

namespace posenc::server {
namespace {

using Entry = Admission::Entry;

// A call that waits for its claim.
class Call final : public Waiter {
 public:
  explicit Call(std::vector<int>* admitted = nullptr, int name = 0,
                std::uint64_t party = 0)
      : ticket(party), admitted_(admitted), name_(name) {}
  void Resume(const absl::Status& result) override {
    if (admitted_ != nullptr)
      admitted_->push_back(result.ok() ? name_ : -name_);
  }

  Admission::Ticket ticket;

 private:
  std::vector<int>* const admitted_;
  const int name_;
};

TEST(Admission, AdmitsClaimsThatFitAndQueuesOthers) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Call a, b(&admitted, 1), c(&admitted, 2), d;
  EXPECT_EQ(admission.Enter(60, &a.ticket, &a), Entry::kAdmitted);
  EXPECT_EQ(admission.Enter(50, &b.ticket, &b), Entry::kWaiting);
  EXPECT_EQ(admission.Enter(10, &c.ticket, &c), Entry::kWaiting)
      << "nobody overtakes";
  EXPECT_EQ(admission.Enter(1, &d.ticket, &d), Entry::kFull);
  EXPECT_EQ(admission.claimed(), 60);
  admission.Release(60);
  EXPECT_EQ(admitted, (std::vector<int>{1, 2}));
  EXPECT_EQ(admission.claimed(), 60);
  admission.Release(50);
  admission.Release(10);
  EXPECT_EQ(admission.claimed(), 0);
  EXPECT_EQ(admission.waiting(), 0u);
}

TEST(Admission, PartiesTakeTurns) {
  Admission admission(100, 10);
  std::vector<int> admitted;
  Call first;
  std::list<Call> waiting;
  const auto wait = [&](int name, std::uint64_t party) {
    Call& call = waiting.emplace_back(&admitted, name, party);
    EXPECT_EQ(admission.Enter(100, &call.ticket, &call), Entry::kWaiting);
  };
  EXPECT_EQ(admission.Enter(100, &first.ticket, &first), Entry::kAdmitted);
  for (const int name : {1, 2, 3}) wait(name, 7);
  wait(4, 8);
  wait(5, 9);
  wait(6, 8);
  for (int i = 0; i < 2; ++i) admission.Release(100);
  // Calls 1 and 4 are admitted. A new party joins the round of call 5.
  wait(7, 10);
  for (int i = 0; i < 6; ++i) admission.Release(100);
  EXPECT_EQ(admitted, (std::vector<int>{1, 4, 5, 7, 2, 6, 3}));
}

TEST(Admission, ACallThatLeavesTheQueueIsNotAdmitted) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Call a, b(&admitted, 1), c(&admitted, 2);
  admission.Enter(100, &a.ticket, &a);
  admission.Enter(100, &b.ticket, &b);
  admission.Enter(30, &c.ticket, &c);
  EXPECT_TRUE(admission.Leave(&b.ticket));
  EXPECT_FALSE(admission.Leave(&b.ticket));
  admission.Release(100);
  EXPECT_EQ(admitted, (std::vector<int>{2}));
  EXPECT_FALSE(admission.Leave(&c.ticket)) << "it is inside";
}

TEST(Admission, TheNextEntersWhenTheFirstOfTheQueueLeaves) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Call a, b(&admitted, 1), c(&admitted, 2);
  admission.Enter(60, &a.ticket, &a);
  EXPECT_EQ(admission.Enter(50, &b.ticket, &b), Entry::kWaiting);
  EXPECT_EQ(admission.Enter(10, &c.ticket, &c), Entry::kWaiting);
  EXPECT_TRUE(admission.Leave(&b.ticket));
  admission.AdmitWaiting();
  EXPECT_EQ(admitted, (std::vector<int>{2}));
  EXPECT_EQ(admission.claimed(), 70);
}

TEST(Admission, AWaitingClaimMayGrow) {
  Admission admission(64, 2);
  Call a, b;
  admission.Enter(30, &a.ticket, &a);
  admission.Enter(30, &b.ticket, &b);
  EXPECT_EQ(admission.EnterMore(20, 30, &a.ticket, &a), Entry::kWaiting);
  EXPECT_TRUE(admission.TryClaim(1, &a.ticket));
  EXPECT_EQ(admission.EnterMore(20, 30, &b.ticket, &b), Entry::kFull)
      << "nobody else is left to release anything";
}

TEST(Admission, CallsInsideComeBeforeCallsOutside) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Call a, b, c(&admitted, 1), d(&admitted, 2);
  admission.Enter(60, &a.ticket, &a);
  admission.Enter(10, &b.ticket, &b);
  EXPECT_EQ(admission.Enter(40, &c.ticket, &c), Entry::kWaiting);
  EXPECT_EQ(admission.EnterMore(31, 10, &d.ticket, &d), Entry::kWaiting);
  EXPECT_EQ(admission.waiting(), 2u);
  admission.Release(1);
  EXPECT_EQ(admitted, (std::vector<int>{2}));
  EXPECT_EQ(admission.claimed(), 100);
  admission.Release(40);
  EXPECT_EQ(admitted, (std::vector<int>{2, 1}));
}

TEST(Admission, AnImpossibleFurtherClaimIsRefusedAtOnce) {
  Admission admission(100, 2);
  Call a, b;
  admission.Enter(60, &a.ticket, &a);
  admission.Enter(10, &b.ticket, &b);
  EXPECT_EQ(admission.EnterMore(91, 10, &b.ticket, &b), Entry::kNever);
  EXPECT_EQ(admission.waiting(), 0u);
  EXPECT_EQ(admission.claimed(), 70);
}

TEST(Admission, TheNewestIsRefusedIfAllHoldersWait) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Call a(&admitted, 1), b(&admitted, 2), c(&admitted, 3);
  admission.Enter(40, &a.ticket, &a);
  admission.Enter(40, &b.ticket, &b);
  admission.Enter(20, &c.ticket, &c);
  EXPECT_EQ(admission.EnterMore(50, 40, &a.ticket, &a), Entry::kWaiting);
  EXPECT_EQ(admission.EnterMore(50, 40, &b.ticket, &b), Entry::kWaiting);
  EXPECT_EQ(admission.EnterMore(1, 20, &c.ticket, &c), Entry::kFull)
      << "the last to run";
  // c fails, and releases its claim. Then a and b both wait, so b, the later
  // call, is refused.
  admission.Release(20);
  EXPECT_EQ(admitted, (std::vector<int>{-2}));
  admission.Release(40);  // b releases its claim
  EXPECT_EQ(admitted, (std::vector<int>{-2, 1}));
  EXPECT_EQ(admission.claimed(), 90);
  admission.Release(90);
  EXPECT_EQ(admission.claimed(), 0);
  EXPECT_EQ(admission.waiting(), 0u);
}

TEST(Admission, TheLastToRunTakesWhatIsLeft) {
  Admission admission(100, 2);
  Call a, b;
  admission.Enter(60, &a.ticket, &a);
  admission.Enter(10, &b.ticket, &b);
  EXPECT_EQ(admission.EnterMore(40, 60, &a.ticket, &a), Entry::kWaiting);
  EXPECT_EQ(admission.EnterMore(30, 10, &b.ticket, &b), Entry::kAdmitted);
}

TEST(Admission, ACallInsideMayLeaveTheQueue) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Call a, b(&admitted, 1), c(&admitted, 2);
  admission.Enter(60, &a.ticket, &a);
  admission.Enter(20, &b.ticket, &b);
  admission.Enter(20, &c.ticket, &c);
  EXPECT_EQ(admission.EnterMore(30, 20, &b.ticket, &b), Entry::kWaiting);
  EXPECT_EQ(admission.EnterMore(10, 20, &c.ticket, &c), Entry::kWaiting);
  EXPECT_TRUE(admission.Leave(&b.ticket));
  EXPECT_FALSE(admission.Leave(&b.ticket));
  admission.Release(20);  // b's
  EXPECT_EQ(admitted, (std::vector<int>{2}));
  EXPECT_FALSE(admission.Leave(&c.ticket)) << "it has been admitted";
}

TEST(Admission, ClaimsWithoutWaitingFitOrNot) {
  Admission admission(100, 2);
  EXPECT_TRUE(admission.TryClaim(100));
  EXPECT_FALSE(admission.TryClaim(1));
  EXPECT_EQ(admission.TakePeak(), 100);
  EXPECT_EQ(admission.TakePeak(), 100) << "still held";
  admission.Release(100);
  EXPECT_EQ(admission.TakePeak(), 100);
  EXPECT_EQ(admission.TakePeak(), 0);
}

TEST(Admission, SmallCallsPassWaitingCallsUpToASixteenth) {
  Admission admission(1600, 2);
  Call full, waiting, small;
  EXPECT_EQ(admission.Enter(1600, &full.ticket, &full), Entry::kAdmitted);
  EXPECT_EQ(admission.Enter(1600, &waiting.ticket, &waiting), Entry::kWaiting);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(admission.Enter(5, &small.ticket, &small), Entry::kAdmitted) << i;
  }
  EXPECT_EQ(admission.Enter(5, &small.ticket, &small), Entry::kWaiting)
      << "1700";
}

TEST(Admission, ACallOfTheWholeBudgetEntersBesideSmallCallsOfASixteenth) {
  Admission admission(1600, 2);
  std::vector<int> admitted;
  Call small, whole(&admitted, 1);
  for (int i = 0; i < 21; ++i) {
    EXPECT_EQ(admission.Enter(5, &small.ticket, &small), Entry::kAdmitted);
  }
  EXPECT_EQ(admission.Enter(1600, &whole.ticket, &whole), Entry::kWaiting);
  admission.Release(5);
  EXPECT_EQ(admitted, (std::vector<int>{1}));
}

TEST(Admission, SmallResponsesPassWaitingCallsUpToASixteenth) {
  Admission admission(1600, 2);
  Call full, unread, small;
  EXPECT_EQ(admission.Enter(800, &full.ticket, &full), Entry::kAdmitted);
  EXPECT_EQ(admission.EnterMore(800, 800, &unread.ticket, &unread),
            Entry::kAdmitted);
  EXPECT_EQ(admission.Enter(5, &small.ticket, &small), Entry::kAdmitted);
  EXPECT_EQ(admission.EnterMore(5, 5, &small.ticket, &small), Entry::kAdmitted);
  EXPECT_EQ(admission.EnterMore(7, 5, &small.ticket, &small), Entry::kWaiting)
      << "not small";
  Call last;
  while (admission.claimed() + 6 <= 1700) {
    EXPECT_EQ(admission.EnterMore(6, 5, &last.ticket, &last), Entry::kAdmitted);
  }
  EXPECT_EQ(admission.EnterMore(6, 5, &last.ticket, &last), Entry::kWaiting);
}

TEST(Admission, SmallResponsesPassALargeOneForTwoSeconds) {
  Admission admission(1600, 2);
  Call full, large, small;
  EXPECT_EQ(admission.Enter(800, &full.ticket, &full), Entry::kAdmitted);
  EXPECT_EQ(admission.Enter(795, &large.ticket, &large), Entry::kAdmitted);
  EXPECT_EQ(admission.EnterMore(700, 795, &large.ticket, &large),
            Entry::kWaiting);
  EXPECT_EQ(admission.Enter(5, &small.ticket, &small), Entry::kAdmitted);
  const auto passes = [&] {
    const Entry entry = admission.EnterMore(5, 5, &small.ticket, nullptr);
    if (entry == Entry::kAdmitted) admission.Release(5);
    return entry == Entry::kAdmitted;
  };
  EXPECT_TRUE(passes());
  EXPECT_TRUE(test::Eventually([&] { return !passes(); }));
}

TEST(Admission, LargeResponsesToSmallRequestsWaitOutside) {
  Admission admission(2560, 10);
  std::vector<int> admitted;
  Call unread, greedy(&admitted, 1), other(&admitted, 2), next(&admitted, 3);
  admission.Enter(5, &unread.ticket, &unread);
  EXPECT_EQ(admission.EnterMore(2500, 5, &unread.ticket, &unread),
            Entry::kAdmitted);
  EXPECT_EQ(admission.Enter(5, &greedy.ticket, &greedy), Entry::kAdmitted);
  EXPECT_EQ(admission.EnterMore(2400, 5, &greedy.ticket, &greedy),
            Entry::kWaiting);
  EXPECT_EQ(admission.Enter(100, &other.ticket, &other), Entry::kWaiting);
  EXPECT_EQ(admission.Enter(5, &next.ticket, &next), Entry::kAdmitted);
  EXPECT_EQ(admission.EnterMore(20, 5, &next.ticket, &next), Entry::kWaiting);
  admission.Release(2505);  // the claim of `unread`
  EXPECT_EQ(admitted, (std::vector<int>{1, 2, 3}));
}

TEST(Admission, SmallHoldersThatAllWaitDoNotWaitForEver) {
  Admission admission(2560, 10);
  std::vector<int> admitted;
  Call a(&admitted, 1), b(&admitted, 2), c(&admitted, 3);
  admission.Enter(10, &a.ticket, &a);
  admission.Enter(10, &b.ticket, &b);
  admission.Enter(10, &c.ticket, &c);
  EXPECT_EQ(admission.EnterMore(2545, 10, &a.ticket, &a), Entry::kWaiting);
  EXPECT_EQ(admission.EnterMore(2545, 10, &b.ticket, &b), Entry::kWaiting);
  // c fails, and releases its claim. Then b, the newest call, is refused.
  admission.Release(10);
  EXPECT_EQ(admitted, (std::vector<int>{-2}));
  admission.Release(10);
  EXPECT_EQ(admitted, (std::vector<int>{-2, 1}));
}

TEST(Admission, TryClaimMayExceedTheBudgetByAGivenPart) {
  Admission admission(100, 2);
  EXPECT_TRUE(admission.TryClaim(100));
  EXPECT_FALSE(admission.TryClaim(5));
  EXPECT_TRUE(admission.TryClaim(5, nullptr, 5));
  EXPECT_FALSE(admission.TryClaim(1, nullptr, 5));
}

TEST(Admission, ClaimHeldMayExceedTheBudget) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Call a, b(&admitted, 1);
  EXPECT_EQ(admission.Enter(10, &a.ticket, &a), Entry::kAdmitted);
  admission.ClaimHeld(190);
  EXPECT_EQ(admission.claimed(), 200);
  EXPECT_EQ(admission.Enter(1, &b.ticket, &b), Entry::kWaiting);
  admission.Release(200);
  EXPECT_EQ(admitted, (std::vector<int>{1}));
}

TEST(Admission, ALargerBudgetLetsTheNextIn) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Call a, b(&admitted, 1);
  EXPECT_EQ(admission.Enter(100, &a.ticket, &a), Entry::kAdmitted);
  EXPECT_EQ(admission.Enter(100, &b.ticket, &b), Entry::kWaiting);
  admission.SetLimits(200, 2);
  EXPECT_EQ(admitted, (std::vector<int>{1}));
}

// A retry learns whether it is too large for the new budget. If other calls
// went on, the waiting call and all calls behind it would wait for ever.
TEST(Admission, ALowerBudgetRefusesImpossibleClaimsAtOnce) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Call a, b(&admitted, 1), c(&admitted, 2);
  admission.Enter(50, &a.ticket, &a);
  admission.Enter(40, &b.ticket, &b);
  EXPECT_EQ(admission.EnterMore(55, 40, &b.ticket, &b), Entry::kWaiting);
  EXPECT_EQ(admission.Enter(20, &c.ticket, &c), Entry::kWaiting);
  admission.SetLimits(80, 2);
  EXPECT_EQ(admitted, (std::vector<int>{-1}));
  admission.Release(40);  // b's
  EXPECT_EQ(admitted, (std::vector<int>{-1, 2}));
}

TEST(Admission, AClaimAboveALowerBudgetRunsAlone) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Call a, b(&admitted, 1);
  admission.Enter(60, &a.ticket, &a);
  EXPECT_EQ(admission.Enter(90, &b.ticket, &b), Entry::kWaiting);
  admission.SetLimits(80, 2);
  admission.Release(60);
  EXPECT_EQ(admitted, (std::vector<int>{1}));
}

}  // namespace
}  // namespace posenc::server
