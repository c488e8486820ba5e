// Messages that do not come: what is done about them, and to whom.

#include "server/budget/transfers.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
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
  std::atomic<bool> admitted{false};
};

class TestCall final : public Transfers::Owner,
                       public std::enable_shared_from_this<TestCall> {
 public:
  std::shared_ptr<void> KeepAlive() override { return shared_from_this(); }
  void ShrinkClaim() override { shrunk.store(true); }
  void CutOff(Direction /*direction*/, const absl::Status& why) override {
    const absl::MutexLock lock(&mutex_);
    cut_ = std::string(why.message());
  }
  std::string cut() const {
    const absl::MutexLock lock(&mutex_);
    return cut_;
  }

  Transfers::Message message;
  std::atomic<bool> shrunk{false};

 private:
  mutable absl::Mutex mutex_;
  std::string cut_;
};

class TransfersTest : public testing::Test {
 protected:
  TransfersTest()
      : admission_(kBudget, 10),
        transfers_(&admission_, [this] { return measured_.load(); }) {}

  std::shared_ptr<TestCall> Start(Direction direction) {
    auto call = std::make_shared<TestCall>();
    transfers_.Add(direction, 0, call.get(), &call->message);
    return call;
  }

  std::atomic<std::int64_t> measured_{0};
  Admission admission_;
  Transfers transfers_;
};

TEST_F(TransfersTest, AClaimShrinksIfItsMessageDoesNotComeAndOthersWait) {
  TestWaiter full, waiting;
  admission_.Enter(kBudget, &full);
  const std::shared_ptr<TestCall> stalled = Start(Direction::kIn);
  EXPECT_TRUE(Eventually([&] { return admission_.held() == measured_; }));
  EXPECT_FALSE(stalled->shrunk.load()) << "nobody waits";
  admission_.Enter(1, &waiting);
  EXPECT_TRUE(Eventually([&] { return stalled->shrunk.load(); }));
  EXPECT_EQ(stalled->cut(), "");
  transfers_.Remove(&stalled->message);
  transfers_.Remove(&stalled->message);  // as after every end
}

TEST_F(TransfersTest, WhatIsMeasuredHoldsOthersBackUntilItIsNoMore) {
  measured_.store(kBudget);
  TestWaiter inside, waiting;
  admission_.Enter(1, &inside);
  const std::shared_ptr<TestCall> stalled = Start(Direction::kIn);
  EXPECT_TRUE(Eventually([&] { return admission_.held() == kBudget; }));
  EXPECT_EQ(admission_.Enter(1, &waiting), Admission::Entry::kWaiting);
  transfers_.Remove(&stalled->message);
  EXPECT_TRUE(Eventually([&] { return waiting.admitted.load(); }));
  EXPECT_EQ(admission_.held(), 0);
}

TEST_F(TransfersTest, TheNewestMessagesAreCutIfMoreIsHeldThanMayBe) {
  std::vector<std::shared_ptr<TestCall>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(Start(Direction::kIn));
  const std::shared_ptr<TestCall> answer = Start(Direction::kOut);
  // 400 more than 1.1 times the budget; each message holds 300 on average.
  measured_.store(1500);
  EXPECT_TRUE(Eventually([&] { return !calls[2]->cut().empty(); }));
  EXPECT_NE(calls[3]->cut().find("announce its size"), std::string::npos);
  EXPECT_EQ(calls[0]->cut(), "");
  EXPECT_EQ(answer->cut(), "");
  EXPECT_GE(transfers_.cut(), 2);
  for (const auto& call : calls) transfers_.Remove(&call->message);
  transfers_.Remove(&answer->message);
}

}  // namespace
}  // namespace posenc::server
