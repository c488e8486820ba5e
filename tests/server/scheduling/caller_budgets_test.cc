// The joint budget of all callers with one token.

#include "server/scheduling/caller_budgets.h"

#include <optional>

#include "gtest/gtest.h"

namespace posenc::server {
namespace {

using Share = CallerBudgets::Share;

TEST(CallerBudgets, CallsOfOneCallerShareALimit) {
  CallerBudgets budgets;
  std::optional<Share> first(std::in_place, &budgets, "a", 100);
  Share second(&budgets, "a", 100), other(&budgets, "b", 100);
  EXPECT_TRUE(first->Claim(60));
  EXPECT_FALSE(second.Claim(60));
  EXPECT_TRUE(second.Claim(40));
  EXPECT_FALSE(second.Claim(1));
  EXPECT_TRUE(other.Claim(100)) << "another caller's limit";
  first.reset();
  EXPECT_TRUE(second.Claim(60));
}

TEST(CallerBudgets, TheOnlyCallOfACallerMayExceedIt) {
  CallerBudgets budgets;
  Share only(&budgets, "a", 100);
  EXPECT_TRUE(only.Claim(60));
  EXPECT_TRUE(only.Claim(60));
  Share next(&budgets, "a", 100);
  EXPECT_FALSE(next.Claim(1));
}

TEST(CallerBudgets, LargerMessagesCountWithTheirRealSize) {
  CallerBudgets budgets;
  Share first(&budgets, "a", 100), second(&budgets, "a", 100);
  EXPECT_TRUE(first.Claim(10));
  first.Add(85);
  EXPECT_FALSE(second.Claim(10));
  first.Add(-90);
  EXPECT_TRUE(second.Claim(10));
}

TEST(CallerBudgets, WithoutALimitNothingIsCounted) {
  CallerBudgets budgets;
  Share first(&budgets, "a", 0), second(&budgets, "a", 10);
  EXPECT_TRUE(first.Claim(1000));
  EXPECT_TRUE(second.Claim(10));
}

}  // namespace
}  // namespace posenc::server
