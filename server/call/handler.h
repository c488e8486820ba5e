// The work of an RPC on its messages: the interface between the code that every
// call shares (call.h, step.h) and the methods (server/methods).

#pragma once

#include <cstdint>
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

// The state of one call of an RPC. Used by one thread at a time.
class CallHandler {
 public:
  virtual ~CallHandler() = default;

  // Gets the time that the call has waited so far, for places and memory,
  // before Receive() and Next(). Handlers use it for statistics.
  virtual void Waited(absl::Duration /*time*/) {}

  // Receives the next message. Receive() and Next() validate everything: the
  // computation can fail only for lack of memory or time.
  virtual absl::Status Receive(RequestMessage message) = 0;

  // Returns the bytes that the handler holds beside the message, such as copies
  // of shared memory. Called after Receive(), to claim them.
  virtual std::int64_t copied_bytes() const { return 0; }

  // Returns whether Next() takes long although the message is small. Called
  // after Receive(), to decide whether Next() may run on the loop's thread.
  virtual bool TakesLong() const { return false; }

  // Called after the client's last message, if there was one and all went well.
  // The result is the call's.
  virtual absl::Status HalfClosed() { return absl::OkStatus(); }

  // Returns whether there is a response without another message.
  virtual bool HasNext() const = 0;
  // Returns the next response; null if there is none.
  virtual absl::StatusOr<std::unique_ptr<PendingResponse>> Next() = 0;

  // Returns a message that reports an error of Receive(), of Next() or of the
  // response, if the call continues after it. nullopt: the error ends the call.
  virtual std::optional<std::string> Tell(const absl::Status& /*error*/) {
    return std::nullopt;
  }

  // Returns whether Next() waits for news from another thread instead of a
  // message. AwaitNews() then returns OK if there are news. nullopt: `waiter`
  // is resumed when there are, unless StopWaiting() returns true.
  virtual bool WaitsForNews() const { return false; }
  virtual std::optional<absl::Status> AwaitNews(Waiter* /*waiter*/) {
    return absl::OkStatus();
  }
  virtual bool StopWaiting() { return false; }
};

}  // namespace posenc::server
