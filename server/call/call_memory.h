// One call's claim on the budget of bytes in flight. The call claims bytes
// before its messages are read, corrects the claim when a message has arrived,
// and releases it at the end. See docs/memory-and-admission.md.
//
// A stream has at most kMessages messages in the server: one is being read or
// waits to be computed, one is being computed, one waits to be sent, one is
// being sent. A request and the response that overwrites it count as one
// message.
//
// Must be used on the loop's thread. ClaimMade(), ClaimFinished(),
// ReleaseResponse(), and ClaimResponse() without a waiter may also be called on
// one thread of the pool.

#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/call/call_headers.h"
#include "server/memory/request_message.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/caller_budgets.h"
#include "server/scheduling/waiter.h"

namespace posenc::server {

class CallMemory final : public RequestMessage::Claimer {
 public:
  static constexpr std::int64_t kMessages = 4;

  // Copies and answers of at most this size are not claimed. They belong to the
  // memory that a server needs in addition to the budget.
  static constexpr std::int64_t kUncountedBytes = 64 << 10;

  // The caller's limit applies to all claims except a stream's responses.
  CallMemory(Admission* admission, CallerBudgets* callers,
             std::int64_t max_request_bytes, const CallSpec& spec)
      : admission_(admission),
        caller_(callers, spec.caller, spec.caller_bytes),
        max_request_bytes_(max_request_bytes),
        stream_(spec.stream),
        ticket_(spec.party) {}
  ~CallMemory() { Release(); }
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;

  // Claims memory for the call's messages. `announced` is the announced size of
  // the largest message. Without it, a size is assumed. For a unary call, this
  // is the largest allowed size if `largest` is true, and else the size of a
  // small call. Returns nullopt if the call waits; `waiter` is then resumed
  // later. Returns kOverloaded if too many calls wait, or the caller's limit is
  // reached.
  std::optional<absl::Status> ClaimRequest(
      std::optional<std::int64_t> announced, bool largest, Waiter* waiter);
  // Returns the announced or assumed size of a message.
  std::int64_t expected() const { return expected_; }

  // Corrects the claim for a received message of `bytes`. Returns
  // kMessageTooLarge if the message exceeds the limit, and INVALID_ARGUMENT if
  // it exceeds the announced size. Returns kOverloaded if a stream needs more
  // bytes and cannot claim them.
  absl::Status Received(std::int64_t bytes);

  // Releases the claim of a stream that waits for its next message, so that
  // other calls can use the memory. Received() claims it again, or fails.
  void Lend();

  // Adjusts the claim for data made from the message. The claim of a stream
  // already covers two copies of a message, so a stream claims only the bytes
  // beyond two copies. This additional claim is not reduced when a later
  // message needs less. Returns kOverloaded if the bytes cannot be claimed
  // immediately, and kMessageTooLarge if they can never be claimed.
  absl::Status ClaimMade(std::int64_t bytes,
                         std::int64_t message_bytes) override;

  // Claims memory for a response whose size was not known before it was
  // computed. Returns the errors of ClaimMade().
  absl::Status ClaimFinished(std::int64_t bytes);

  // Claims memory for a response. Returns nullopt if the call has to wait.
  // `waiter` is then resumed later. After nullopt without a waiter, nothing is
  // claimed.
  std::optional<absl::Status> ClaimResponse(std::int64_t bytes, Waiter* waiter);

  // Releases claimed bytes of a response whose buffers were not allocated.
  void ReleaseResponse(std::int64_t bytes) { admission_->Release(bytes); }

  // Stops waiting. Returns false if the waiter was resumed, or is being
  // resumed.
  bool StopWaiting();

  // Releases the call's claim, also within the caller's limit. The buffers of a
  // response release their own bytes. May be called more than once.
  void Release();

 private:
  absl::Status ReceivedOfStream(std::int64_t bytes);
  void MakeRoomFor(std::int64_t bytes);
  // Adds `bytes`, which Admission has claimed, to held_ and to the caller's
  // bytes. `bytes` is negative after a release.
  void Hold(std::int64_t bytes);
  // Claims `bytes` without waiting. All claims together may then exceed the
  // budget by 1/kBeyondPart of the budget. `what` names the memory in errors.
  // `remedy` ends the error's text if the budget can never hold the bytes.
  absl::Status ClaimBeyond(std::int64_t bytes, absl::string_view what,
                           absl::string_view remedy);

  Admission* const admission_;
  CallerBudgets::Share caller_;
  const std::int64_t max_request_bytes_;
  const bool stream_;
  std::optional<std::int64_t> announced_;
  std::int64_t expected_ = 0;
  Admission::Ticket ticket_;
  std::atomic<std::int64_t> held_{0};
  std::int64_t lent_ = 0;              // bytes that Lend() released
  std::atomic<bool> entering_{false};  // waits for its first claim
  // Bytes of a stream's largest unannounced message beyond the assumed size.
  std::int64_t largest_excess_ = 0;
  std::atomic<std::int64_t> largest_message_{0};  // of a stream, in bytes
  std::int64_t made_ = 0;  // bytes that ClaimMade() has claimed
};

}  // namespace posenc::server
