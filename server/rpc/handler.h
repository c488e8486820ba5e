// What an RPC makes of its messages: the interface between the machinery that
// every call shares (call.h, step.h) and the methods (server/methods).
//
//   message -> CallHandler::Receive()     parses and validates
//              CallHandler::Next()        -> PendingResponse, or none
//   PendingResponse: claim bytes_to_claim(), Allocate(), Compute() each tile,
//              Finish()                   -> message

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/budget/waiter.h"
#include "server/memory/request_message.h"
#include "server/rpc/pending_response.h"

namespace posenc::server {

// The state of one call of an RPC. Used by one thread at a time.
class CallHandler {
 public:
  virtual ~CallHandler() = default;

  // For how long the call has waited by now, for places and memory. Told before
  // Receive() and Next(), for handlers that keep statistics.
  virtual void Waited(absl::Duration /*time*/) {}

  // Takes the next message in. Everything about it is validated here or in
  // Next(): computing can fail only for want of memory or time.
  virtual absl::Status Receive(RequestMessage message) = 0;

  // Bytes that the handler holds of the message beside the message itself, as
  // copies of shared memory. Asked after Receive(), to be claimed.
  virtual std::int64_t copied_bytes() const { return 0; }

  // Whether Next() takes long although the message is small. Asked after
  // Receive(), of steps on a thread that others wait for.
  virtual bool TakesLong() const { return false; }

  // Whether there is a response without another message.
  virtual bool HasNext() const = 0;
  // The next response; null if there is none.
  virtual absl::StatusOr<std::unique_ptr<PendingResponse>> Next() = 0;

  // The message that tells of an error of Receive(), of Next() or of the
  // response, if the call goes on after it. nullopt: the error ends the call.
  virtual std::optional<std::string> Tell(const absl::Status& /*error*/) {
    return std::nullopt;
  }

  // Whether Next() waits for something other than a message: for news that
  // another thread brings. Then AwaitNews() gives OK if there are some;
  // nullopt: `waiter` is resumed when there are, unless StopWaiting() returns
  // true.
  virtual bool WaitsForNews() const { return false; }
  virtual std::optional<absl::Status> AwaitNews(Waiter* /*waiter*/) {
    return absl::OkStatus();
  }
  virtual bool StopWaiting() { return false; }
};

}  // namespace posenc::server
