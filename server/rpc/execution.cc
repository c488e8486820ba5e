#include "server/rpc/execution.h"

#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/budget/errors.h"

namespace posenc::server {
namespace {

// A step of so many bytes runs on gRPC's own thread: handing it to the pool
// costs tens of microseconds. Larger ones would be done sooner there as well,
// but small calls would wait for them. Two cores, steps on gRPC's thread to
// steps on the pool, calls a second: one call of 256 KiB or 1 MiB at a time
// 1.06 and 1.13; four of 4 KiB at a time beside two of 1 MiB 0.49.
constexpr std::size_t kInlineBytes = 128 << 10;

// A failed allocation ends the call, not the server.
template <typename Function>
auto OrOutOfMemory(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::length_error&) {  // more than a container can hold
    return OutOfMemory();
  }
}

}  // namespace

Execution::Execution(std::unique_ptr<CallHandler> handler,
                     core::ComputePool* pool, ResponseBuffers* buffers,
                     CallClaim* claim, Owner* owner)
    : handler_(std::move(handler)),
      pool_(pool),
      buffers_(buffers),
      claim_(claim),
      owner_(owner) {}

void Execution::Start(std::size_t message_bytes, bool urgent,
                      bool may_run_here) {
  urgent_ = urgent;
  if (may_run_here && message_bytes <= kInlineBytes) return Prepare(true);
  Submit(&Execution::PrepareOnPool);
}

void Execution::Submit(void (Execution::*part)()) {
  owner_->OnStepLeaves();
  owner_->SetBusy(true);
  pool_->Submit([this, part, keep = owner_->KeepAlive()] { (this->*part)(); },
                urgent_);
}

void Execution::Prepare(bool inline_only) {
  std::optional<RequestMessage> message = owner_->TakeMessageOfStep();
  const absl::Status received = OrOutOfMemory([&] {
    handler_->Waited(owner_->Waited());
    absl::Status status;
    if (message) status = handler_->Receive(*std::move(message));
    return status;
  });
  if (!received.ok()) return owner_->OnComputeFailed(received);
  const std::int64_t copied = handler_->copied_bytes();
  if (copied > 0) claim_->AddCopied(copied);
  if (inline_only && handler_->TakesLong()) {
    return Submit(&Execution::RespondOnPool);
  }
  Respond(inline_only);
}

void Execution::Respond(bool inline_only) {
  absl::StatusOr<std::unique_ptr<PendingResponse>> pending =
      OrOutOfMemory([&] { return handler_->Next(); });
  if (!pending.ok()) return owner_->OnComputeFailed(pending.status());
  pending_ = *std::move(pending);
  if (pending_ == nullptr) return owner_->OnComputed(nullptr);
  const bool submit = inline_only && pending_->work_bytes() > kInlineBytes;
  if (pending_->bytes_to_claim() > 0) {
    // If the claim waits, another thread may go on with this step at once, and
    // even end the call.
    const std::shared_ptr<void> keep = owner_->KeepAlive();
    owner_->OnStepLeaves();
    owner_->SetBusy(false);
    const Admission::Entry entry =
        claim_->ClaimResponse(pending_->bytes_to_claim());
    switch (entry) {
      case Admission::Entry::kAdmitted:
        break;
      case Admission::Entry::kWaiting:
        // Whoever stopped the call before it waited did not find it waiting.
        if (stop_.load() && claim_->StopWaitingForResponse()) {
          claim_->AdmitOthers();
          Abandon();
          owner_->OnComputeFailed(absl::CancelledError("the call has ended"));
        }
        return;
      case Admission::Entry::kFull:
      case Admission::Entry::kNever:
        return RefuseClaim(entry);
    }
  }
  if (submit) return Submit(&Execution::Compute);
  owner_->SetBusy(true);
  Compute();
}

void Execution::Claimed(bool granted) {
  if (!granted) return RefuseClaim(Admission::Entry::kFull);
  Submit(&Execution::Compute);
}

void Execution::RefuseClaim(Admission::Entry why) {
  const std::int64_t bytes = pending_->bytes_to_claim();
  pending_.reset();
  owner_->OnComputeFailed(
      why == Admission::Entry::kNever
          ? NeverFits(bytes)
          : OverBudget(absl::StrCat("no room for a response of ", bytes,
                                    " bytes beside the calls in progress")));
}

void Execution::Abandon() { pending_.reset(); }

void Execution::Compute() {
  const absl::Status allocated =
      OrOutOfMemory([&] { return pending_->Allocate(buffers_); });
  if (!allocated.ok()) {
    const std::int64_t unused = pending_->bytes_to_claim();
    pending_.reset();
    claim_->ReleaseResponse(unused);
    return owner_->OnComputeFailed(allocated);
  }
  absl::Status computed = RunTiles();
  if (computed.ok()) {
    computed = OrOutOfMemory([&] { return pending_->Complete(); });
  }
  grpc::ByteBuffer response;
  if (computed.ok()) {
    computed = OrOutOfMemory([&] {
      pending_->Finish(&response);
      return claim_->ClaimFinished(pending_->unclaimed_bytes());
    });
  }
  // It holds the request. Its memory is free before the owner starts another
  // step, or needs memory to send.
  pending_.reset();
  if (!computed.ok()) return owner_->OnComputeFailed(computed);
  owner_->OnComputed(&response);
}

// Returns the first error. Tiles that start after it do nothing.
absl::Status Execution::RunTiles() {
  const auto stop = [this]() -> absl::Status {
    if (!stop_.load(std::memory_order_relaxed)) return absl::OkStatus();
    return absl::CancelledError("the call has ended");
  };
  std::mutex mutex;
  absl::Status first;
  std::atomic<bool> failed{false};
  pool_->ForEach(pending_->tiles(), [&](std::int64_t tile) {
    if (failed.load(std::memory_order_relaxed)) return;
    absl::Status status = stop();
    if (status.ok()) {
      status = OrOutOfMemory([&] { return pending_->Compute(tile, stop); });
    }
    if (status.ok()) return;
    failed.store(true);
    const std::lock_guard<std::mutex> lock(mutex);
    if (first.ok()) first = std::move(status);
  });
  return first;
}

}  // namespace posenc::server
