#include <vector>

#include "gtest/gtest.h"
#include "server/wire/admission.h"

namespace posenc::server {
namespace {

using Entry = Admission::Entry;

class Waiter final : public Admission::Waiter {
 public:
  explicit Waiter(std::vector<int>* admitted = nullptr, int name = 0)
      : admitted_(admitted), name_(name) {}
  void Admitted() override {
    if (admitted_ != nullptr) admitted_->push_back(name_);
  }

 private:
  std::vector<int>* const admitted_;
  const int name_;
};

TEST(Admission, AdmitsWhatFitsAndQueuesWhatDoesNot) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Waiter a, b(&admitted, 1), c(&admitted, 2), d;
  EXPECT_EQ(admission.Enter(60, &a), Entry::kAdmitted);
  EXPECT_EQ(admission.Enter(50, &b), Entry::kWaiting);
  EXPECT_EQ(admission.Enter(10, &c), Entry::kWaiting) << "nobody overtakes";
  EXPECT_EQ(admission.Enter(1, &d), Entry::kFull);
  EXPECT_EQ(admission.claimed(), 60);
  admission.Release(60);
  EXPECT_EQ(admitted, (std::vector<int>{1, 2}));
  EXPECT_EQ(admission.claimed(), 60);
  admission.Release(50);
  admission.Release(10);
  EXPECT_EQ(admission.claimed(), 0);
  EXPECT_EQ(admission.waiting(), 0u);
}

TEST(Admission, OneThatLeavesTheQueueIsNotAdmitted) {
  Admission admission(100, 2);
  std::vector<int> admitted;
  Waiter a, b(&admitted, 1), c(&admitted, 2);
  admission.Enter(100, &a);
  admission.Enter(100, &b);
  admission.Enter(30, &c);
  EXPECT_TRUE(admission.Leave(&b));
  EXPECT_FALSE(admission.Leave(&b));
  admission.Release(100);
  EXPECT_EQ(admitted, (std::vector<int>{2}));
  EXPECT_FALSE(admission.Leave(&c)) << "it is inside";
}

TEST(Admission, MoreThanTheBudgetTakesAllOfIt) {
  Admission admission(100, 2);
  EXPECT_EQ(admission.Bounded(1000), 100);
  EXPECT_EQ(admission.Bounded(7), 7);
}

TEST(Admission, ClaimsOfThoseInsideNeverWait) {
  Admission admission(100, 2);
  EXPECT_TRUE(admission.TryClaim(100));
  EXPECT_FALSE(admission.TryClaim(1));
  EXPECT_EQ(admission.TakeClaimedBytes(), 100);
  EXPECT_EQ(admission.TakeClaimedBytes(), 100) << "still held";
  admission.Release(100);
  EXPECT_EQ(admission.TakeClaimedBytes(), 100);
  EXPECT_EQ(admission.TakeClaimedBytes(), 0);
}

}  // namespace
}  // namespace posenc::server
