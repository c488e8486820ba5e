// The threads that compute a step's tiles, and the memory of its response.

#include "server/call/step.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace posenc::server {
namespace {

// Has one response of many tiles, each of which takes long for its bytes. Notes
// their threads.
class ManyTiles final : public CallHandler {
 public:
  static constexpr int kTiles = 64;

  absl::Status Receive(RequestMessage /*message*/) override {
    return absl::OkStatus();
  }
  bool HasNext() const override { return false; }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next() override {
    TensorAnswer answer;
    answer.computation = std::make_unique<TileFunction>(
        kTiles, [this](std::int64_t tile, absl::Span<const OutputBuffer>,
                       StopCheck /*stop*/) {
          for (volatile int i = 0; i < 300000;) i = i + 1;
          threads[tile] = std::this_thread::get_id();
          return absl::OkStatus();
        });
    return std::make_unique<PendingResponse>(std::move(answer), nullptr,
                                             nullptr, "", 0);
  }

  std::vector<std::thread::id> threads{kTiles};
};

// Has one response of 1 MiB, and does not compute it.
class Large final : public CallHandler {
 public:
  absl::Status Receive(RequestMessage /*message*/) override {
    return absl::OkStatus();
  }
  bool HasNext() const override { return false; }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next() override {
    TensorAnswer answer;
    answer.outputs.push_back({1, core::Dtype::kFloat32, {1 << 18}});
    answer.computation = std::make_unique<TileFunction>(1, nullptr);
    return std::make_unique<PendingResponse>(std::move(answer), nullptr,
                                             nullptr, "", 0);
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
  CallerBudgets::Share share_{&callers_, "", 0};
  CallMemory memory_{admission_.get(), &share_, 1 << 20, false};
  core::ComputePool pool_{4};
  ResponseBuffers buffers_{admission_};
  Stop stop_;
  const Wait wait_{nullptr, &stop_};
};

// A thread of the pool may have to wait for the processor, and the loop with
// it.
TEST_F(StepTest, TilesOnTheLoopsThreadAreNotSpread) {
  ManyTiles handler;
  Step step(With(&handler), std::nullopt);
  EXPECT_EQ(step.Advance(false), Step::Need::kNothing);
  EXPECT_TRUE(step.status().ok()) << step.status();
  EXPECT_EQ(handler.threads,
            std::vector(ManyTiles::kTiles, std::this_thread::get_id()));
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
