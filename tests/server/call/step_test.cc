// The threads that compute a step's tiles.

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

// A thread of the pool may have to wait for the processor, and the loop with
// it.
TEST(StepTest, TilesOnTheLoopsThreadAreNotSpread) {
  const auto admission = std::make_shared<Admission>(1 << 20, 10);
  CallerBudgets callers;
  CallerBudgets::Share share(&callers, "", 0);
  CallMemory memory(admission.get(), &share, 1 << 20, false);
  core::ComputePool pool(4);
  ResponseBuffers buffers(admission);
  Stop stop;
  const Wait wait(nullptr, &stop);
  ManyTiles handler;
  Step step({&handler, &memory, &pool, &buffers, &stop, &wait}, std::nullopt);
  EXPECT_EQ(step.Advance(false), Step::Need::kNothing);
  EXPECT_TRUE(step.status().ok()) << step.status();
  EXPECT_EQ(handler.threads,
            std::vector(ManyTiles::kTiles, std::this_thread::get_id()));
}

}  // namespace
}  // namespace posenc::server
