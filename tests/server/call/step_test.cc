// The threads that compute a step's tiles, and when they end.

#include "server/call/step.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/steady_time.h"

namespace posenc::server {
namespace {

// Has one response with many tiles, each of which takes a millisecond. Records
// the threads that compute them.
class ManyTiles final : public CallHandler {
 public:
  static constexpr int kTiles = 64;

  absl::Status Receive(RequestMessage /*message*/) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      StopCheck /*stop*/) override {
    TensorAnswer answer;
    answer.computation = std::make_unique<TileFunction>(
        kTiles, [this](std::int64_t tile, absl::Span<const OutputBuffer>,
                       StopCheck /*stop*/) {
          const absl::Time end = SteadyNow() + absl::Milliseconds(1);
          while (SteadyNow() < end) {
          }
          EXPECT_EQ(threads[tile], std::thread::id());
          threads[tile] = std::this_thread::get_id();
          if (tile == stopping_tile) stop->Request(absl::CancelledError());
          return absl::OkStatus();
        });
    return std::make_unique<PendingResponse>(std::move(answer), nullptr,
                                             nullptr, "", 1 << 20);
  }

  std::vector<std::thread::id> threads{kTiles};
  Stop* stop = nullptr;
  std::int64_t stopping_tile = -1;
};

// Has one response of 1 MiB, and does not compute it.
class Large final : public CallHandler {
 public:
  absl::Status Receive(RequestMessage /*message*/) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      StopCheck /*stop*/) override {
    TensorAnswer answer;
    answer.outputs.push_back({1, core::Dtype::kFloat32, {1 << 18}});
    answer.computation = std::make_unique<TileFunction>(1, nullptr);
    return std::make_unique<PendingResponse>(std::move(answer), nullptr,
                                             nullptr, "", 1 << 20);
  }
};

class StepTest : public testing::Test {
 protected:
  Step::With With(CallHandler* handler) {
    return {handler, &memory_, &pool_, &buffers_, &stop_, &wait_};
  }

  const std::shared_ptr<Admission> admission_ =
      std::make_shared<Admission>(4 << 20, 10);
  CallerBudgets callers_;
  CallMemory memory_{admission_.get(), &callers_, 1 << 20, CallSpec()};
  core::ComputePool pool_{4};
  ResponseBuffers buffers_{admission_};
  Stop stop_;
  const Wait wait_{nullptr, &stop_};
  ManyTiles handler_;
  Step step_{With(&handler_), std::nullopt};
};

// A thread of the pool may have to wait for the processor, and then the loop
// would wait, too.
TEST_F(StepTest, TilesOnTheLoopsThreadAreNotSpread) {
  EXPECT_EQ(step_.Advance(false), Step::Need::kNothing);
  EXPECT_TRUE(step_.status().ok()) << step_.status();
  EXPECT_EQ(handler_.threads,
            std::vector(ManyTiles::kTiles, std::this_thread::get_id()));
}

TEST_F(StepTest, ALongStepLetsOthersHaveTheirTurn) {
  // Four threads compute about 40 tiles in a turn.
  EXPECT_EQ(step_.Advance(true), Step::Need::kTurn);
  EXPECT_FALSE(step_.has_response());
  Step::Need need;
  while ((need = step_.Advance(true)) == Step::Need::kTurn) {
  }
  EXPECT_EQ(need, Step::Need::kNothing);
  EXPECT_TRUE(step_.has_response());
  for (const std::thread::id thread : handler_.threads) {
    EXPECT_NE(thread, std::thread::id());
  }
}

TEST_F(StepTest, NoTileFollowsAStop) {
  handler_.stop = &stop_;
  handler_.stopping_tile = 5;
  EXPECT_EQ(step_.Advance(false), Step::Need::kNothing);
  EXPECT_EQ(step_.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(std::count(handler_.threads.begin(), handler_.threads.end(),
                       std::thread::id()),
            ManyTiles::kTiles - 6);
}

TEST_F(StepTest, AStepThatEndsBeforeItComputesReleasesWhatItClaimed) {
  Large handler;
  {
    Step step(With(&handler), std::nullopt);
    EXPECT_EQ(step.Advance(false), Step::Need::kPool);
    EXPECT_EQ(admission_->claimed(), 1 << 20);
  }
  EXPECT_EQ(admission_->claimed(), 0);
}

}  // namespace
}  // namespace posenc::server
