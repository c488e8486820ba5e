// The interface between the code that all calls share (call.h, step.h) and the
// methods (server/methods).

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/call/pending_response.h"
#include "server/memory/request_message.h"
#include "server/scheduling/waiter.h"

namespace posenc::server {

// A step of at most this many bytes runs on the loop's thread, because handing
// it to the pool costs tens of microseconds. Larger steps would also end sooner
// on the loop's thread, but small calls would wait for them. In a test on two
// cores, two calls of 1 MiB at a time on the loops halved the rate of 4 KiB
// calls.
inline constexpr std::size_t kInlineBytes = 128 << 10;

// The state of one call of an RPC. Used by one thread at a time.
class CallHandler {
 public:
  virtual ~CallHandler() = default;

  // Called before Receive() and Next(), with the time that the call has waited
  // so far for places and memory. Handlers use this time for statistics.
  virtual void Waited(absl::Duration /*time*/) {}

  // Returns the size of the largest message that Receive() may read on the
  // loop's thread.
  virtual std::size_t inline_message_bytes() const { return kInlineBytes; }

  // Receives the next message. Receive() and Next() must validate everything,
  // so that the computation can fail only for lack of memory or time.
  virtual absl::Status Receive(RequestMessage message) = 0;

  // Returns whether Next() takes long although the message is small, for
  // example because tensors are in shared memory. Called after Receive(), to
  // decide whether Next() may run on the loop's thread.
  virtual bool TakesLong() const { return false; }

  // Called after the client's last message, if a message has come and there was
  // no error. The result becomes the status of the call.
  virtual absl::Status HalfClosed() { return absl::OkStatus(); }

  // Returns whether Next() has a response without another Receive().
  virtual bool HasNext() const { return false; }
  // Returns the next response; null if there is none. `stop` is valid until
  // Next() returns.
  virtual absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      StopCheck stop) = 0;

  // Converts an error of Receive(), of Next() or of computing the response to a
  // message for the client; the call then continues. Returns nullopt if the
  // error must end the call.
  virtual std::optional<std::string> Tell(const absl::Status& /*error*/) {
    return std::nullopt;
  }

  // Returns whether Next() needs news from another thread instead of a message.
  // In this case, AwaitNews() is called. AwaitNews() returns OK if there is
  // news already. If AwaitNews() returns nullopt, `waiter` is resumed when
  // there is news, unless StopWaiting() has returned true before.
  virtual bool WaitsForNews() const { return false; }
  virtual std::optional<absl::Status> AwaitNews(Waiter* /*waiter*/) {
    return absl::OkStatus();
  }
  virtual bool StopWaiting() { return false; }
};

}  // namespace posenc::server
