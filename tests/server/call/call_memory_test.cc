// The claim of one call, tested without a real call.

#include "server/call/call_memory.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::server {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kBudget = 64 << 20;
constexpr std::int64_t kHalf = kBudget / 2;

class Nobody final : public Waiter {
 public:
  void Resume(const absl::Status& /*result*/) override {}
};

CallSpec Spec(const std::string& caller, bool stream) {
  CallSpec spec;
  spec.caller = caller;
  spec.caller_bytes = caller.empty() ? 0 : kBudget;
  spec.stream = stream;
  return spec;
}

struct Case {
  std::string name;
  bool stream = false;
  // After this function, the call holds nothing.
  std::function<void(Admission*, CallMemory*, Waiter*)> call;
};

class HoldsNothingTest : public testing::TestWithParam<Case> {};

// If calls kept their claims until their statuses are read, a client that reads
// no status would block all other calls with its token.
TEST_P(HoldsNothingTest, AnotherCallWithItsTokenGetsItsShare) {
  Admission admission(kBudget, 1);
  CallerBudgets callers;
  Nobody waiter;
  CallMemory memory(&admission, &callers, kBudget,
                    Spec("a", GetParam().stream));
  GetParam().call(&admission, &memory, &waiter);
  EXPECT_EQ(admission.claimed(), 0);
  CallMemory next(&admission, &callers, kBudget, Spec("a", false));
  EXPECT_EQ(next.ClaimRequest(kBudget, true, &waiter), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(
    Calls, HoldsNothingTest,
    testing::ValuesIn(std::vector<Case>{
        {"WhoseClaimStoppedWaiting", false,
         [](Admission* admission, CallMemory* memory, Waiter* waiter) {
           admission->ClaimHeld(kBudget);
           EXPECT_EQ(memory->ClaimRequest(kHalf, true, waiter), std::nullopt);
           EXPECT_TRUE(memory->StopWaiting());
           memory->Release();
           admission->Release(kBudget);
         }},
        {"WhoseClaimFoundAFullQueue", false,
         [](Admission* admission, CallMemory* memory, Waiter* waiter) {
           admission->ClaimHeld(kBudget);
           Admission::Ticket other;
           admission->Enter(kHalf, &other, waiter);
           const auto full = memory->ClaimRequest(kHalf, true, waiter);
           EXPECT_THAT(std::string(full->message()), HasSubstr("queue"));
           memory->Release();
           EXPECT_TRUE(admission->Leave(&other));
           admission->Release(kBudget);
         }},
        {"WhoseResponseNeverFits", false,
         [](Admission* /*admission*/, CallMemory* memory, Waiter* waiter) {
           EXPECT_TRUE(memory->ClaimRequest(kHalf, true, waiter)->ok());
           EXPECT_TRUE(memory->Received(kHalf).ok());
           EXPECT_FALSE(memory->ClaimResponse(kHalf + 1, waiter)->ok());
           memory->Release();
         }},
        {"WhoseStatusIsSent", false,
         [](Admission* /*admission*/, CallMemory* memory, Waiter* waiter) {
           EXPECT_TRUE(memory->ClaimRequest(kHalf, true, waiter)->ok());
           EXPECT_TRUE(memory->Received(kHalf).ok());
           EXPECT_TRUE(memory->ClaimResponse(kHalf, waiter)->ok());
           memory->ReleaseResponse(kHalf);  // as the response's slices do
           memory->Release();
         }},
        {"WhichIsLent", true,
         [](Admission* /*admission*/, CallMemory* memory, Waiter* waiter) {
           EXPECT_TRUE(memory->ClaimRequest(kHalf, true, waiter)->ok());
           EXPECT_TRUE(memory->Received(kHalf).ok());
           memory->Lend();
         }},
    }),
    [](const auto& info) { return info.param.name; });

// A stream of large messages claims the whole budget.
TEST(CallMemoryTest, DataOfASmallMessageFitsBesideItInAStream) {
  constexpr std::int64_t kMessage = 1 << 20;
  constexpr std::int64_t kMade = 2 * kMessage + kBudget / 8;
  Admission admission(kBudget, 1);
  CallerBudgets callers;
  Nobody waiter;
  CallMemory memory(&admission, &callers, kBudget, Spec("", true));
  EXPECT_TRUE(memory.ClaimRequest(kBudget / 4, true, &waiter)->ok());
  EXPECT_TRUE(memory.Received(kMessage).ok());
  EXPECT_TRUE(memory.ClaimMade(kMade, kMessage).ok());
  // The kMade bytes stay claimed beside the response.
  EXPECT_TRUE(memory.ClaimResponse(kBudget * 3 / 4, &waiter)->ok());
  EXPECT_FALSE(memory.ClaimResponse(kBudget, &waiter)->ok());
  EXPECT_GE(admission.claimed(), kBudget * 7 / 8);
  memory.ReleaseResponse(kBudget * 3 / 4);
  memory.Release();
  EXPECT_EQ(admission.claimed(), 0);
}

}  // namespace
}  // namespace posenc::server
