// What one call holds of the budget of bytes in flight: claimed before its
// messages are read, corrected when they have come, released at its end.
//
//   a unary call         the announced bytes, else a stated share of the budget
//                        (Admission::kSmallPart), 64 KiB at least, or the
//                        most that a message may have
//   a stream             kMessages x the announced bytes, else x 5 MiB
//
// A stream has at most kMessages messages in the server: being read or waiting,
// being computed, waiting to be sent, being sent; a response that is written
// over its request counts as that. When its message has come, a unary call
// claims its real size; a stream claims more if a message is above 5 MiB that
// it did not announce.
//
// Threads: the loop's thread, and one thread of the pool for ClaimMade(),
// AddCopied(), ClaimFinished() and ClaimResponse() without a waiter.

#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/budget/admission.h"
#include "server/budget/caller_budgets.h"
#include "server/budget/waiter.h"
#include "server/memory/request_message.h"

namespace posenc::server {

class CallMemory final : public RequestMessage::Claimer {
 public:
  static constexpr std::int64_t kMessages = 4;

  // The first 64 KiB of copies and answers are not claimed: what each call
  // takes covers them.
  static constexpr std::int64_t kUncountedBytes = 64 << 10;

  // stream: the call has many messages, one way or both. caller: what the call
  // claims of its caller's own limit: its requests, and a unary call's
  // response.
  CallMemory(Admission* admission, CallerBudgets::Share* caller,
             std::int64_t max_request_bytes, bool stream)
      : admission_(admission),
        caller_(caller),
        max_request_bytes_(max_request_bytes),
        stream_(stream) {}
  ~CallMemory() { Release(); }
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;

  // Claims for the messages to come, of which the largest has `announced`
  // bytes if the client said so. Else, if `largest`, a unary call claims the
  // most that a message may have. nullopt: waits, and `waiter` is resumed.
  // RESOURCE_EXHAUSTED, kOverloaded: too many wait already, or the caller's
  // limit is reached.
  std::optional<absl::Status> Enter(std::optional<std::int64_t> announced,
                                    bool largest, Waiter* waiter);
  // The most that the next message is taken to have.
  std::int64_t expected() const { return expected_; }

  // A message of `bytes` has come. kMessageTooLarge over the limit;
  // INVALID_ARGUMENT over what was announced; kOverloaded if a stream's message
  // is larger than was claimed and the rest is not to be had.
  absl::Status Received(std::int64_t bytes);

  // Releases the claim while others wait. Received() claims it again, or fails.
  void Lend();

  // The call holds so many bytes more, of its message. They fit or not.
  void AddCopied(std::int64_t bytes);

  // Claims more, or less, than what was made of the message before. Of a
  // stream, which has claimed for two copies of a message, only what is beyond
  // them, and the largest such claim stays. kOverloaded if the bytes are not to
  // be had at once, and kMessageTooLarge if they never are.
  absl::Status ClaimMade(std::int64_t bytes,
                         std::int64_t message_bytes) override;

  // Claims for the response of a unary call that was computed before anybody
  // could know its size. Errors as ClaimMade().
  absl::Status ClaimFinished(std::int64_t bytes);

  // Claims for a response. nullopt: `waiter` is resumed, or, if there is none,
  // nothing was claimed and the call has to wait.
  std::optional<absl::Status> ClaimResponse(std::int64_t bytes, Waiter* waiter);

  // Returns claimed bytes of a response whose buffers were not allocated.
  void ReleaseResponse(std::int64_t bytes) { admission_->Release(bytes); }

  // Stops waiting. False if the waiter was resumed, or is being resumed.
  bool StopWaiting();

  // Gives back what the call claims. May be called again.
  void Release();

 private:
  absl::Status ReceivedOfStream(std::int64_t bytes);
  void MakeRoomFor(std::int64_t bytes);
  // Counts bytes that Admission has given.
  void Hold(std::int64_t bytes);
  // what: what takes the bytes, as an error names it. remedy: of the error that
  // it is larger than the budget.
  absl::Status ClaimBeyond(std::int64_t bytes, absl::string_view what,
                           absl::string_view remedy);

  Admission* const admission_;
  CallerBudgets::Share* const caller_;
  const std::int64_t max_request_bytes_;
  const bool stream_;
  std::optional<std::int64_t> announced_;
  std::int64_t expected_ = 0;
  Admission::Ticket ticket_;
  std::atomic<std::int64_t> held_{0};
  std::int64_t lent_ = 0;              // what Lend() released
  std::atomic<bool> entering_{false};  // in the queue for the first claim
  std::int64_t largest_excess_ = 0;    // of a stream's unannounced messages
  std::atomic<std::int64_t> largest_message_{0};  // of a stream's
  std::int64_t made_ = 0;  // what ClaimMade() has claimed
};

}  // namespace posenc::server
