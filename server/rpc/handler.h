// What an RPC makes of its messages: the interface between the machinery that
// every call shares (call.h, step.h) and the methods (server/methods).
//
//   message -> CallHandler::Receive()     parses and validates
//              CallHandler::Next()        -> PendingResponse, or none
//   PendingResponse: claim bytes_to_claim(), Allocate(), Compute() each tile,
//              Finish()                   -> message

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/budget/waiter.h"
#include "server/memory/request_message.h"
#include "server/memory/response_buffers.h"
#include "server/rpc/computation.h"

namespace posenc::server {

// A response whose bytes are still to be computed. Its functions are called in
// this order: Allocate() once; Compute() once for each tile of [0, tiles()), in
// any order, at once on several threads; Complete() once, unless a tile failed;
// Finish() once, unless Complete() failed.
class PendingResponse {
 public:
  virtual ~PendingResponse() = default;

  std::int64_t tiles() const { return tiles_; }
  // Bytes that are read and written, to judge where to run.
  std::size_t work_bytes() const { return work_bytes_; }

  // Bytes of memory that Allocate() will take beside the request's. They have
  // to be claimed before. If Allocate() fails, these are the bytes that it has
  // not taken, which the caller must release.
  std::int64_t bytes_to_claim() const { return bytes_to_claim_; }

  virtual absl::Status Allocate(ResponseBuffers* /*buffers*/) {
    return absl::OkStatus();
  }
  virtual absl::Status Compute(std::int64_t tile, StopCheck stop) = 0;
  // Whether what the tiles have computed holds.
  virtual absl::Status Complete() { return absl::OkStatus(); }
  virtual void Finish(grpc::ByteBuffer* response) = 0;
  // Bytes of a unary call's response that nobody has claimed, as they are not
  // known before Finish().
  virtual std::int64_t unclaimed_bytes() const { return 0; }

 protected:
  std::int64_t tiles_ = 0;
  std::size_t work_bytes_ = 0;
  std::int64_t bytes_to_claim_ = 0;
};

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
