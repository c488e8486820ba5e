#include "server/call/call_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "posenc/wire/metadata.h"
#include "server/base/errors.h"

namespace posenc::server {
namespace {

// Assumed size of a stream's messages if nothing is announced: more than the
// recommended chunk of nearly 4 MiB.
constexpr std::int64_t kStreamMessageBytes = std::int64_t{5} << 20;

// Data made from messages may exceed the budget by 1/kBeyondPart of the budget.
// Otherwise the server would refuse a message that it has already read,
// whenever other calls hold the whole budget.
constexpr std::int64_t kBeyondPart = 16;

// Memory that gRPC and the server need for a call in addition to its messages.
constexpr std::int64_t kCallBytes = 16 << 10;

}  // namespace

void CallMemory::Hold(std::int64_t bytes) {
  caller_.Add(bytes);
  held_ += bytes;
}

std::optional<absl::Status> CallMemory::ClaimRequest(
    std::optional<std::int64_t> announced, bool largest, Waiter* waiter) {
  announced_ = announced;
  const std::int64_t share =
      std::max(admission_->budget() / Admission::kSmallPart, kUncountedBytes);
  expected_ =
      announced.value_or(stream_   ? kStreamMessageBytes
                         : largest ? max_request_bytes_
                                   : std::min(max_request_bytes_, share));
  // A call that needs more than the budget claims the whole budget, and so runs
  // alone.
  const std::int64_t bytes = std::min(
      stream_ ? kMessages * expected_ : expected_, admission_->budget());
  if (!caller_.Claim(bytes)) {
    return OverBudget(absl::StrCat("the calls with this token hold all of the ",
                                   caller_.limit(),
                                   " bytes that they may have in flight"));
  }
  held_ = bytes;
  switch (admission_->Enter(bytes, &ticket_, waiter)) {
    case Admission::Entry::kAdmitted:
      return absl::OkStatus();
    case Admission::Entry::kWaiting:
      entering_ = true;
      return std::nullopt;
    case Admission::Entry::kNever:  // impossible: bytes <= budget
    case Admission::Entry::kFull:
      break;
  }
  held_ = 0;
  return OverBudget("the server is full, and so is the queue before it");
}

bool CallMemory::StopWaiting() {
  if (!admission_->Leave(&ticket_)) return false;
  if (entering_) held_ = 0;
  admission_->AdmitWaiting();
  return true;
}

void CallMemory::Lend() {
  const std::int64_t held = held_;
  Hold(-held);
  lent_ += held;
  if (held > 0) admission_->Release(held);
}

absl::Status CallMemory::Received(std::int64_t bytes) {
  entering_ = false;
  if (lent_ > 0) {
    if (!caller_.Claim(lent_) ||
        !admission_->TryClaim(lent_, &ticket_,
                              admission_->budget() / kBeyondPart)) {
      return OverBudget(
          "others took the stream's memory while it sent nothing");
    }
    held_ += std::exchange(lent_, 0);
  }
  RETURN_IF_ERROR(
      CheckRequest(static_cast<std::size_t>(bytes), max_request_bytes_));
  if (announced_ && bytes > *announced_) {
    return core::FieldInvalid(
        wire::kMessageBytes, "a message of ", bytes, " bytes, but ",
        *announced_, " were announced; announce the largest, or nothing");
  }
  if (stream_) return ReceivedOfStream(bytes);
  const std::int64_t unused = held_ - bytes;
  Hold(-unused);
  if (unused < 0) admission_->ClaimHeld(-unused);
  if (unused > 0) admission_->Release(unused);
  return absl::OkStatus();
}

// Claims memory for kMessages messages of the largest size so far.
absl::Status CallMemory::ReceivedOfStream(std::int64_t bytes) {
  largest_message_ = std::max(largest_message_.load(), bytes);
  const std::int64_t excess =
      announced_ ? 0 : std::max<std::int64_t>(bytes - kStreamMessageBytes, 0);
  if (excess <= largest_excess_) return absl::OkStatus();
  const std::int64_t more = (excess - largest_excess_) * kMessages;
  if (!admission_->TryClaim(more, &ticket_)) {
    return OverBudget(
        absl::StrCat("no room for messages of ", bytes,
                     " bytes; announce the largest to wait for room"));
  }
  Hold(more);
  largest_excess_ = excess;
  return absl::OkStatus();
}

absl::Status CallMemory::ClaimMade(std::int64_t bytes,
                                   std::int64_t message_bytes) {
  // A stream has claimed memory for four messages, and parses only one of them
  // at a time. So its claim covers two more copies of this message.
  if (stream_) bytes -= 2 * message_bytes;
  if (bytes <= kUncountedBytes) bytes = 0;
  if (stream_) bytes = std::max(bytes, made_);
  const std::int64_t more = bytes - made_;
  if (more > 0) {
    RETURN_IF_ERROR(ClaimBeyond(
        more, "message, with its parsed form and positions,",
        "send less beside the tensors, or raise --in-flight-bytes"));
  }
  Hold(more);
  made_ = bytes;
  if (more < 0) admission_->Release(-more);
  return absl::OkStatus();
}

absl::Status CallMemory::ClaimFinished(std::int64_t bytes) {
  if (bytes <= kUncountedBytes) return absl::OkStatus();
  // Peers may leave many of these responses unread. A response can be so small
  // that gRPC's own memory for the call matters, so this memory is claimed,
  // too.
  bytes += kCallBytes;
  const absl::Status room =
      ClaimBeyond(bytes, "call, with its response,", "raise --in-flight-bytes");
  if (room.ok()) Hold(bytes);
  return room;
}

absl::Status CallMemory::ClaimBeyond(std::int64_t bytes, absl::string_view what,
                                     absl::string_view remedy) {
  const std::int64_t budget = admission_->budget();
  const std::int64_t beyond = budget / kBeyondPart;
  if (stream_) MakeRoomFor(bytes);
  if (admission_->TryClaim(bytes, &ticket_, beyond)) return absl::OkStatus();
  RETURN_IF_ERROR(CheckSize("", what, static_cast<std::uint64_t>(held_ + bytes),
                            budget + beyond, remedy));
  return OverBudget(
      absl::StrCat("no room for a ", what, " of ", held_ + bytes, " bytes"));
}

std::optional<absl::Status> CallMemory::ClaimResponse(std::int64_t bytes,
                                                      Waiter* waiter) {
  const auto full = [bytes] {
    return OverBudget(absl::StrCat("no room for a response of ", bytes,
                                   " bytes beside the calls in progress"));
  };
  entering_ = false;
  if (stream_) MakeRoomFor(bytes);
  if (!stream_ && !caller_.Claim(bytes)) return full();
  switch (admission_->EnterMore(bytes, held_, &ticket_, waiter)) {
    case Admission::Entry::kAdmitted:
      return absl::OkStatus();
    case Admission::Entry::kWaiting:
      if (waiter == nullptr && !stream_) caller_.Add(-bytes);
      return std::nullopt;
    case Admission::Entry::kNever:
      return NeverFits(bytes);
    case Admission::Entry::kFull:
      break;
  }
  return full();
}

// Reduces the claim of a stream until the claim and `bytes` together fit into
// the budget. The claim is for four messages, and may be the whole budget. At
// least one message and the data made from it stay claimed, as in a unary call.
void CallMemory::MakeRoomFor(std::int64_t bytes) {
  const std::int64_t held = held_.load();
  const std::int64_t more = std::min(held + bytes - admission_->budget(),
                                     held - largest_message_.load() - made_);
  if (more <= 0) return;
  Hold(-more);
  admission_->Release(more);
}

void CallMemory::Release() {
  const std::int64_t held = held_.exchange(0);
  if (held > 0) admission_->Release(held);
  caller_.Clear();
}

}  // namespace posenc::server
