#include "server/call/step.h"

#include <mutex>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/base/status_macros.h"
#include "grpcpp/support/slice.h"
#include "server/base/errors.h"
#include "server/base/steady_time.h"

namespace posenc::server {
namespace {

// Time on the pool after which other steps may run. A change of steps takes at
// most a hundredth of this time.
constexpr absl::Duration kTurn = absl::Milliseconds(10);

}  // namespace

Step::Need Step::Advance(bool on_pool) {
  const absl::Cleanup timed = [this, start = SteadyNow()] {
    computing_ += SteadyNow() - start;
  };
  while (status_.ok()) {
    switch (stage_) {
      case Stage::kReceive:
        if (!on_pool && message_ &&
            message_->bytes() > with_.handler->inline_message_bytes()) {
          return Need::kPool;
        }
        status_ = with_.stop->Check();
        if (!status_.ok()) break;
        status_ = OrOutOfMemory([this] { return Receive(); });
        if (status_.ok()) stage_ = Stage::kRespond;
        break;
      case Stage::kRespond:
        if (!on_pool && with_.handler->TakesLong()) return Need::kPool;
        status_ = OrOutOfMemory([this] { return Respond(); });
        if (!status_.ok()) break;
        stage_ = response_ == nullptr ? Stage::kOver : Stage::kClaim;
        break;
      case Stage::kClaim:
        if (bytes_to_claim() > 0) {
          const std::optional<absl::Status> claimed =
              with_.memory->ClaimResponse(bytes_to_claim(), nullptr);
          if (!claimed) return Need::kMemory;
          Claimed(*claimed);
          break;
        }
        stage_ = Stage::kAllocate;
        break;
      case Stage::kAllocate:
        if (!on_pool && response_->work_bytes() > kInlineBytes) {
          return Need::kPool;
        }
        status_ = Allocate();
        if (status_.ok()) stage_ = Stage::kCompute;
        break;
      case Stage::kCompute:
        status_ = Compute(on_pool);
        if (!status_.ok()) break;
        if (computed_ < response_->tiles()) return Need::kTurn;
        status_ = Finish();
        if (!status_.ok()) break;
        has_response_ = true;
        stage_ = Stage::kOver;
        break;
      case Stage::kOver:
        // The response owns the request. Dropping both frees their memory
        // before the answer is sent.
        response_.reset();
        return Need::kNothing;
    }
  }
  Fail();
  return Need::kNothing;
}

// Gives the error to the handler, which may turn it into a message. An error of
// Claimed() is not given to the handler, because the call must then end, to
// free its memory.
void Step::Fail() {
  DropResponse();
  if (stage_ == Stage::kOver) return;
  status_ = OrOutOfMemory([this] { return Tell(); });
}

absl::Status Step::Tell() {
  const std::optional<std::string> told = with_.handler->Tell(status_);
  if (!told) return status_;
  const grpc::Slice slice(*told);
  grpc::ByteBuffer(&slice, 1).Swap(&output_);
  has_response_ = true;
  return absl::OkStatus();
}

absl::Status Step::Receive() {
  with_.handler->Waited(with_.wait->all());
  if (!message_) return absl::OkStatus();
  absl::Status status = with_.handler->Receive(*std::move(message_));
  message_.reset();
  return status;
}

absl::Status Step::Respond() {
  ASSIGN_OR_RETURN(response_,
                   with_.handler->Next([this] { return with_.stop->Check(); }));
  return absl::OkStatus();
}

void Step::DropResponse() {
  if (response_ != nullptr &&
      (stage_ == Stage::kAllocate || stage_ == Stage::kCompute)) {
    with_.memory->ReleaseResponse(bytes_to_claim());
  }
  response_ = nullptr;
}

void Step::Claimed(const absl::Status& result) {
  status_ = result;
  stage_ = result.ok() ? Stage::kAllocate : Stage::kOver;
}

absl::Status Step::Allocate() {
  return OrOutOfMemory([this] { return response_->Allocate(with_.buffers); });
}

absl::Status Step::Finish() {
  return OrOutOfMemory([this] {
    RETURN_IF_ERROR(response_->Finish(&output_));
    return with_.memory->ClaimFinished(response_->unclaimed_bytes());
  });
}

// Runs the tiles that are left. On the pool, stops after kTurn. Returns the
// first error.
absl::Status Step::Compute(bool on_pool) {
  const absl::Time end = SteadyNow() + kTurn;
  const auto stop = [this] { return with_.stop->Check(); };
  std::mutex mutex;
  absl::Status first;
  // Returns whether another tile may follow.
  const auto compute = [&](std::int64_t i) {
    const std::int64_t tile = computed_ + i;
    absl::Status status = stop();
    if (status.ok()) {
      status = OrOutOfMemory([&] { return response_->Compute(tile, stop); });
    }
    if (status.ok()) return !on_pool || SteadyNow() < end;
    const std::lock_guard<std::mutex> lock(mutex);
    if (first.ok()) first = std::move(status);
    return false;
  };
  const std::int64_t tiles = response_->tiles() - computed_;
  std::int64_t ran = 0;
  if (on_pool) {
    ran = with_.pool->ForEach(tiles, compute);
  } else {
    // A loop must not wait for a thread of the pool, because that thread may
    // have to wait for the processor.
    while (ran < tiles && compute(ran)) ++ran;
  }
  computed_ += ran;
  return first;
}

}  // namespace posenc::server
