// What one call holds of the budget of bytes in flight, from its headers to its
// end.
//
// A call claims for its requests before it is read (Enter), corrects that when
// a message has come and its size is known (Received), and claims again for
// each response that needs memory of its own (ClaimResponse). The bytes of a
// response belong to its buffer from then on, which releases them when gRPC has
// sent it (ResponseBuffers); everything else is released by Release().
//
//                        announced                   not announced
//   unary call           the announced bytes         what the method's messages
//                                                    have, from this peer
//                                                    (MessageSizes)
//   stream of requests   4 x the announced bytes     4 x 5 MiB
//
// 4 messages (kMessages) are in a stream's line at most: being read, waiting,
// being computed or sent; a response that is written over its request counts as
// that. When its message has come, a unary call claims its real size; a stream
// claims more if a message is above 5 MiB that it did not announce. A claim
// shrinks if others wait and its message does not come (Shrink).
//
// States, under the lock:
//
//   kOutside --Enter--> kWaiting --admitted--> kInside
//       ^------full, or stopped----'
//
// A call that waits for a response's bytes (response_waits_) is inside.
//
// Threads: functions may be called on any thread. The owner's functions are
// called without the lock, while the claim holds a reference to the owner.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/budget/admission.h"
#include "server/budget/caller_budgets.h"
#include "server/budget/message_sizes.h"
#include "server/memory/request_message.h"

namespace posenc::server {

class CallClaim final : public RequestMessage::Claimer,
                        private Admission::Waiter {
 public:
  // The call. It owns the claim.
  class Owner {
   public:
    // A reference that keeps the call alive.
    virtual std::shared_ptr<void> KeepAlive() = 0;
    // The call may be read now. Only after Enter() has left it waiting.
    virtual void OnEntered() = 0;
    // The response's bytes are claimed, or never will be. Only after
    // ClaimResponse() has returned kWaiting.
    virtual void OnResponseClaimed(bool claimed) = 0;

   protected:
    ~Owner() = default;
  };

  // Messages of a stream that wait to be computed, at most, and responses that
  // wait to be sent.
  static constexpr std::size_t kAhead = 2;
  // Messages that are in memory, at most.
  static constexpr std::size_t kMessages = kAhead + 2;

  enum class State { kOutside, kWaiting, kInside };

  // stream: the call has many messages, one way or both. caller: what the call
  // claims of its caller's own limit: its requests, and a unary call's
  // response.
  CallClaim(Admission* admission, CallerBudgets::Share* caller,
            MessageSizes* sizes, int method, std::uint64_t peer,
            std::int64_t max_request_bytes, bool stream, Owner* owner);

  // Claims for the messages to come, of which the largest has `announced`
  // bytes if the client said so. OK: inside, or waiting. RESOURCE_EXHAUSTED,
  // kOverloaded: too many wait already, or the caller's limit is reached.
  absl::Status Enter(std::optional<std::int64_t> announced);

  State state() const { return state_.load(); }

  // A message of `bytes` has come. kMessageTooLarge over the limit;
  // INVALID_ARGUMENT over what was announced; kOverloaded if a stream's message
  // is larger than was claimed and the rest is not to be had.
  absl::Status Received(std::int64_t bytes);

  // The call holds so many bytes more, of its message. They fit or not.
  void AddCopied(std::int64_t bytes);

  // Claims more, or less, than what was made of the message before. Of a
  // stream, which has claimed for two copies of a message, only what is beyond
  // them, and the largest such claim stays. kOverloaded if the bytes are not to
  // be had at once, and kMessageTooLarge if they never are.
  absl::Status ClaimMade(std::int64_t bytes,
                         std::int64_t message_bytes) override;

  // Claims for the response of a unary call that was computed before anybody
  // could know its size, and that a peer may leave unread. Errors as
  // ClaimMade().
  absl::Status ClaimFinished(std::int64_t bytes);

  // The message, which was not announced, is given up as there is no memory for
  // what has come of it, so many bytes: if this is more than was claimed, the
  // next one of its peer claims more, and waits for room.
  void ExpectMore(std::int64_t holds);

  // The message does not come: the claim shrinks to nothing, and what the call
  // does hold is measured with what others hold (Transfers). Returns the bytes
  // that the caller releases as soon as it holds no lock. Not if a message of
  // the call is in memory.
  std::int64_t Shrink();

  // Claims for a response. kWaiting: OnResponseClaimed() will be called, unless
  // StopWaitingForResponse() returns true first.
  Admission::Entry ClaimResponse(std::int64_t bytes);

  // Returns claimed bytes of a response whose buffers were not allocated.
  void ReleaseResponse(std::int64_t bytes) { admission_->Release(bytes); }

  // Stops waiting to enter, or for a response's bytes, and says whether it did.
  // If not, the owner's function was or is being called, or nothing waited. If
  // it did, the caller calls AdmitOthers() as soon as it holds no lock.
  bool StopWaitingToEnter();
  bool StopWaitingForResponse();
  void AdmitOthers() { admission_->AdmitWaiting(); }

  // The call is over: releases what it holds.
  void Release();

 private:
  absl::Status ReceivedOfStream(std::int64_t bytes);
  // what: what takes the bytes, as an error names it. remedy: of the error that
  // it is larger than the budget.
  absl::Status ClaimBeyond(std::int64_t bytes, absl::string_view what,
                           absl::string_view remedy);

  void Admitted() override;
  void Refused() override;
  std::uint64_t PeerId() const override { return peer_; }

  Admission* const admission_;
  CallerBudgets::Share* const caller_;
  MessageSizes* const sizes_;
  const int method_;
  const std::uint64_t peer_;
  const std::int64_t max_request_bytes_;
  const bool stream_;
  Owner* const owner_;
  std::optional<std::int64_t> announced_;  // set by Enter()

  mutable std::mutex mutex_;
  std::atomic<State> state_{State::kOutside};  // changed under the lock
  std::int64_t held_ = 0;
  std::int64_t shrunk_ = 0;  // bytes of the claim that are to be claimed again
  // Of a stream's messages that were not announced, over 5 MiB.
  std::int64_t largest_excess_ = 0;
  std::int64_t made_ = 0;  // what ClaimMade() has claimed
  bool response_waits_ = false;
};

}  // namespace posenc::server
