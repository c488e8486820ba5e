// Messages that do not come: what is done about them, and to whom.

#include "server/budget/transfers.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/eventually.h"

namespace posenc::server {
namespace {

using Direction = Transfers::Direction;
using test::Eventually;

constexpr std::int64_t kBudget = 1000;

class TestWaiter final : public Admission::Waiter {
 public:
  void Admitted() override { admitted.store(true); }
  void Refused() override {}
  std::uint64_t PeerId() const override { return peer; }
  std::uint64_t peer = 3;
  std::atomic<bool> admitted{false};
};

class TestCall final : public Transfers::Owner,
                       public std::enable_shared_from_this<TestCall> {
 public:
  std::shared_ptr<void> KeepAlive() override { return shared_from_this(); }
  std::uint64_t PeerId() const override { return peer; }
  void ExpectMore(std::uint64_t /*message*/, std::int64_t /*holds*/) override {
    expected_more.store(true);
  }
  void ShrinkClaim(std::uint64_t number) override {
    shrunk.store(number == message.number());
  }
  bool CutOff(Direction /*direction*/, std::uint64_t number,
              const absl::Status& why) override {
    const absl::MutexLock lock(&mutex_);
    cut_ = std::string(why.message());
    cut_number_ = number;
    return !arrived;
  }
  std::uint64_t cut_number() const {
    const absl::MutexLock lock(&mutex_);
    return cut_number_;
  }
  std::string cut() const {
    const absl::MutexLock lock(&mutex_);
    return cut_;
  }

  Transfers::Message message;
  std::atomic<bool> shrunk{false};
  std::atomic<bool> expected_more{false};
  std::uint64_t peer = 0;
  // The message has come by the time at which it is to be given up.
  std::atomic<bool> arrived{false};

 private:
  mutable absl::Mutex mutex_;
  std::string cut_;
  std::uint64_t cut_number_ = 0;
};

class TransfersTest : public testing::Test {
 protected:
  explicit TransfersTest(std::int64_t budget = kBudget)
      : admission_(budget, 10),
        transfers_(
            &admission_,
            [this] {
              ++measures_;
              absl::SleepFor(absl::Milliseconds(wait_ms_.exchange(0)));
              return measured_.load();
            },
            [](std::int64_t /*held*/) {}) {}

  std::shared_ptr<TestCall> Start(Direction direction) {
    auto call = std::make_shared<TestCall>();
    transfers_.Add(direction, 0, false, call.get(), &call->message);
    return call;
  }

  // Waits until the next measure has been taken. What comes on from one to the
  // next counts, too.
  void Measure(std::int64_t held) {
    measured_.store(held);
    EXPECT_TRUE(Eventually([&] { return admission_.held() == held; }));
  }

  // Ten measures later: a tenth of a second at least.
  bool WaitForMeasures() {
    const int before = measures_.load();
    return Eventually([&] { return measures_.load() >= before + 10; });
  }

  std::atomic<std::int64_t> measured_{0};
  std::atomic<int> measures_{0};
  std::atomic<int> wait_ms_{0};  // what the next measure waits
  Admission admission_;
  Transfers transfers_;
};

// With room for as much as messages bring that move for hours.
class LargeTransfersTest : public TransfersTest {
 protected:
  static constexpr std::int64_t kLargeBudget = std::int64_t{1} << 40;
  LargeTransfersTest() : TransfersTest(kLargeBudget) {}
};

TEST_F(TransfersTest, AClaimShrinksIfItsMessageDoesNotComeAndOthersWait) {
  TestWaiter full, waiting;
  admission_.Enter(kBudget, &full);
  const std::shared_ptr<TestCall> stalled = Start(Direction::kIn);
  EXPECT_TRUE(Eventually([&] { return admission_.held() == measured_; }));
  EXPECT_FALSE(stalled->shrunk.load()) << "nobody waits";
  admission_.Enter(10, &waiting);
  EXPECT_TRUE(Eventually([&] { return stalled->shrunk.load(); }));
  EXPECT_EQ(stalled->cut(), "");
  transfers_.Remove(&stalled->message);
  transfers_.Remove(&stalled->message);  // as after every end
}

TEST_F(LargeTransfersTest, ClaimsOfMessagesThatMoveDoNotShrink) {
  TestWaiter full, waiting;
  admission_.Enter(kLargeBudget, &full);
  admission_.Enter(kLargeBudget, &waiting);
  measured_.store(kLargeBudget / 2);
  const std::shared_ptr<TestCall> moving = Start(Direction::kIn);
  EXPECT_TRUE(WaitForMeasures());
  EXPECT_FALSE(moving->shrunk.load());
  measured_.store(0);
  EXPECT_TRUE(Eventually([&] { return moving->shrunk.load(); }));
  transfers_.Remove(&moving->message);
}

TEST_F(LargeTransfersTest, ResponsesThatAreHeldDoNotCountAsMovingRequests) {
  TestWaiter full, waiting;
  admission_.Enter(kLargeBudget, &full);
  admission_.Enter(kLargeBudget, &waiting);
  measured_.store(kLargeBudget / 2);
  const std::shared_ptr<TestCall> stalled = Start(Direction::kIn);
  auto answered = std::make_shared<TestCall>();
  transfers_.Add(Direction::kOut, kLargeBudget / 2, false, answered.get(),
                 &answered->message);
  EXPECT_TRUE(Eventually([&] { return stalled->shrunk.load(); }));
  transfers_.Remove(&stalled->message);
  transfers_.Remove(&answered->message);
}

// Its work alone counts for the pause until the next one. If its 1.3 s did, the
// next one would be 50 times as far away, later than the test waits.
TEST_F(TransfersTest, AMeasureThatWaitedForTheProcessorDoesNotPutOffTheNext) {
  wait_ms_.store(1300);
  const std::shared_ptr<TestCall> coming = Start(Direction::kIn);
  EXPECT_TRUE(WaitForMeasures());
  transfers_.Remove(&coming->message);
}

TEST_F(TransfersTest, WhatIsMeasuredHoldsOthersBackUntilItIsNoMore) {
  measured_.store(kBudget);
  TestWaiter inside, waiting;
  admission_.Enter(1, &inside);
  const std::shared_ptr<TestCall> stalled = Start(Direction::kIn);
  EXPECT_TRUE(Eventually([&] { return admission_.held() == kBudget; }));
  EXPECT_EQ(admission_.Enter(10, &waiting), Admission::Entry::kWaiting);
  transfers_.Remove(&stalled->message);
  EXPECT_TRUE(Eventually([&] { return waiting.admitted.load(); }));
  EXPECT_EQ(admission_.held(), 0);
}

TEST_F(TransfersTest, TheNewestMessagesAreCutIfMoreIsHeldThanMayBe) {
  std::vector<std::shared_ptr<TestCall>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(Start(Direction::kIn));
  const std::shared_ptr<TestCall> answer = Start(Direction::kOut);
  // Nobody is cut who has just begun.
  Measure(960);
  EXPECT_EQ(transfers_.cut(), 0);
  Measure(1100);
  EXPECT_TRUE(Eventually([&] { return !calls[3]->cut().empty(); }));
  EXPECT_NE(calls[3]->cut().find("announce its size"), std::string::npos);
  EXPECT_EQ(calls[0]->cut(), "") << "the oldest";
  EXPECT_TRUE(calls[3]->expected_more.load());
  EXPECT_FALSE(calls[0]->expected_more.load());
  EXPECT_EQ(answer->cut(), "");
  EXPECT_GE(transfers_.cut(), 1);
  for (const auto& call : calls) transfers_.Remove(&call->message);
  transfers_.Remove(&answer->message);
}

// 100 messages that hold 0.121 of the budget together, beside 0.85 of it.
class HundredTransfersTest : public LargeTransfersTest {
 protected:
  static constexpr std::int64_t kThousandth = kLargeBudget / 1000;

  HundredTransfersTest() { measured_.store(968 * kThousandth); }

  void CutSome() {
    std::vector<std::shared_ptr<TestCall>> calls;
    for (int i = 0; i < 100; ++i) calls.push_back(Start(Direction::kIn));
    // All are a second old, the age from which on none counts for more.
    const absl::Time old = absl::Now() + absl::Seconds(1);
    EXPECT_TRUE(Eventually([old] { return absl::Now() > old; }));
    measured_.store(971 * kThousandth);
    EXPECT_TRUE(Eventually([&] { return transfers_.cut() >= 6; }));
    EXPECT_TRUE(WaitForMeasures());
    EXPECT_GE(transfers_.cut(), 6);
    for (const auto& call : calls) transfers_.Remove(&call->message);
  }
};

// Ten messages that held 2 MiB each beside 250 MiB of answers were cut off two
// at a time, each as if it held 25 MiB, and grew meanwhile.
TEST_F(HundredTransfersTest, AsManyAreCutAsHoldTheExcessBesideAnswers) {
  auto answer = std::make_shared<TestCall>();
  transfers_.Add(Direction::kOut, 850 * kThousandth, true, answer.get(),
                 &answer->message);
  CutSome();
  // Each message has 1.2 thousandths, and a half of that counts. The excess is
  // 4 thousandths if as much comes again until the next measure, which are 7
  // messages, and 16 if that is five times later, which are 27.
  EXPECT_LE(transfers_.cut(), 27);
  transfers_.Remove(&answer->message);
}

// Two messages that came beside 180 MiB that calls worked on were cut off one
// at a time, as if all of it were theirs.
TEST_F(HundredTransfersTest, WhatIsWorkedOnIsNotOfMessagesThatCome) {
  transfers_.AddWorkedOn(850 * kThousandth);
  CutSome();
}

TEST_F(TransfersTest, AMessageHasItsNumberForItselfWhileItIsUnderWay) {
  const std::shared_ptr<TestCall> call = Start(Direction::kIn);
  const std::uint64_t first = call->message.number();
  EXPECT_NE(first, 0u);
  transfers_.Remove(&call->message);
  EXPECT_EQ(call->message.number(), 0u);
  transfers_.Add(Direction::kIn, 0, false, call.get(), &call->message);
  EXPECT_NE(call->message.number(), 0u);
  EXPECT_NE(call->message.number(), first);
  transfers_.Remove(&call->message);
}

TEST_F(TransfersTest, WhoIsCutOffLearnsWhichMessageIsMeant) {
  const std::shared_ptr<TestCall> call = Start(Direction::kIn);
  const std::uint64_t number = call->message.number();
  Measure(900);
  Measure(1100);
  EXPECT_TRUE(Eventually([&] { return !call->cut().empty(); }));
  EXPECT_EQ(call->cut_number(), number);
  transfers_.Remove(&call->message);
}

TEST_F(TransfersTest, AMessageThatHasComeMeanwhileIsNotCountedAsCut) {
  const std::shared_ptr<TestCall> late = Start(Direction::kIn);
  late->arrived.store(true);
  Measure(1100);
  EXPECT_TRUE(Eventually([&] { return !late->cut().empty(); }));
  transfers_.Remove(&late->message);
  const std::shared_ptr<TestCall> stalled = Start(Direction::kIn);
  Measure(1101);
  EXPECT_TRUE(Eventually([&] { return transfers_.cut() > 0; }));
  EXPECT_EQ(transfers_.cut(), 1);
  EXPECT_NE(stalled->cut(), "");
  transfers_.Remove(&stalled->message);
}

TEST_F(TransfersTest, WhoAnnouncedIsCutLast) {
  const std::shared_ptr<TestCall> silent = Start(Direction::kIn);
  auto announced = std::make_shared<TestCall>();
  transfers_.Add(Direction::kIn, 1 << 20, false, announced.get(),
                 &announced->message);
  Measure(900);
  Measure(1100);
  EXPECT_TRUE(Eventually([&] { return !silent->cut().empty(); }));
  EXPECT_EQ(announced->cut(), "");
  transfers_.Remove(&silent->message);
  transfers_.Remove(&announced->message);
}

TEST_F(LargeTransfersTest, WhoAnnouncedLittleAndSendsMuchIsCutBeforeTheHonest) {
  measured_.store(kLargeBudget - kLargeBudget / 16);
  auto liar = std::make_shared<TestCall>();
  transfers_.Add(Direction::kIn, 1024, false, liar.get(), &liar->message);
  auto honest = std::make_shared<TestCall>();
  transfers_.Add(Direction::kIn, kLargeBudget, false, honest.get(),
                 &honest->message);
  EXPECT_TRUE(WaitForMeasures());
  EXPECT_EQ(liar->cut(), "") << "there is room for all";
  Measure(kLargeBudget + kLargeBudget / 16);
  EXPECT_TRUE(Eventually([&] { return !liar->cut().empty(); }));
  EXPECT_EQ(honest->cut(), "");
  transfers_.Remove(&liar->message);
  transfers_.Remove(&honest->message);
}

// A stream's answers are claimed, however small they are; a message that was
// announced is cut only for what is beyond 1.05 times the budget.
TEST_F(TransfersTest,
       SmallAnswersThatNobodyReadsAreCutBeforeAnnouncedMessages) {
  measured_.store(1040);
  const auto add = [this](Direction direction, std::int64_t bytes,
                          bool claimed) {
    auto call = std::make_shared<TestCall>();
    transfers_.Add(direction, bytes, claimed, call.get(), &call->message);
    return call;
  };
  const auto answer = add(Direction::kOut, 10, false);
  const auto of_stream = add(Direction::kOut, 10, true);
  const auto announced = add(Direction::kIn, 1 << 20, false);
  EXPECT_TRUE(Eventually([&] { return !answer->cut().empty(); }));
  EXPECT_EQ(of_stream->cut(), "");
  EXPECT_EQ(announced->cut(), "");
  for (const auto& call : {answer, of_stream, announced}) {
    transfers_.Remove(&call->message);
  }
}

// 31 connections that left an answer of 8 MiB unread each had all others wait
// for 18 s.
TEST_F(TransfersTest, WhoHoldsAllAloneIsCutSoonerIfAnotherWaits) {
  TestWaiter full, other;
  admission_.Enter(kBudget, &full);
  const auto greedy = std::make_shared<TestCall>();
  greedy->peer = 1;
  transfers_.Add(Direction::kOut, 900, false, greedy.get(), &greedy->message);
  measured_.store(900);
  other.peer = 2;
  admission_.Enter(10, &other);
  EXPECT_TRUE(Eventually([&] { return transfers_.cut() == 1; }));
  EXPECT_THAT(greedy->cut(), testing::HasSubstr("more than its part"));
  transfers_.Remove(&greedy->message);
}

TEST_F(TransfersTest, WhoHoldsMoreThanAFairPartIsCutSoonerIfOthersWait) {
  TestWaiter full, waiting;
  admission_.Enter(kBudget, &full);
  const auto answer = [this](std::uint64_t peer) {
    auto call = std::make_shared<TestCall>();
    call->peer = peer;
    transfers_.Add(Direction::kOut, 100, false, call.get(), &call->message);
    return call;
  };
  std::vector<std::shared_ptr<TestCall>> greedy;
  for (int i = 0; i < 9; ++i) greedy.push_back(answer(1));
  const auto modest = answer(2);
  auto stream = std::make_shared<TestCall>();
  stream->peer = 1;
  transfers_.Add(Direction::kOut, 100, true, stream.get(), &stream->message);
  measured_.store(1000);
  const absl::Time old = absl::Now() + absl::Seconds(1.2);
  EXPECT_TRUE(Eventually([old] { return absl::Now() > old; }));
  EXPECT_EQ(transfers_.cut(), 0) << "nobody waits";
  waiting.peer = 1;
  admission_.Enter(10, &waiting);
  EXPECT_TRUE(WaitForMeasures());
  EXPECT_EQ(transfers_.cut(), 0) << "it holds up itself alone";
  TestWaiter other;
  admission_.Enter(10, &other);
  EXPECT_TRUE(Eventually([&] { return transfers_.cut() == 9; }));
  for (const auto& call : greedy) {
    EXPECT_THAT(call->cut(), testing::HasSubstr("more than its part"));
    transfers_.Remove(&call->message);
  }
  EXPECT_EQ(modest->cut(), "");
  EXPECT_EQ(stream->cut(), "") << "its client may be at work";
  // Small calls have used what they have beside the budget.
  admission_.ClaimHeld(kBudget / 20);
  EXPECT_TRUE(Eventually([&] { return !modest->cut().empty(); }));
  transfers_.Remove(&modest->message);
  transfers_.Remove(&stream->message);
}

}  // namespace
}  // namespace posenc::server
