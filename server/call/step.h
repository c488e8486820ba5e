// Computes one response: receives the message, asks the handler for a response,
// claims and allocates memory, computes the tiles, and finishes the response.
//
// Small steps run on the loop's thread. Larger steps run on the pool, because
// the loop must serve other calls. Idle threads of the pool help to compute the
// tiles of larger steps.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/runtime/pool.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/call/call_memory.h"
#include "server/call/handler.h"
#include "server/call/stop.h"
#include "server/call/wait.h"
#include "server/memory/request_message.h"
#include "server/memory/response_buffers.h"

namespace posenc::server {

// Must be used by one thread at a time.
class Step {
 public:
  // Objects that a step uses. They must outlive the step.
  struct With {
    CallHandler* handler;
    CallMemory* memory;
    core::ComputePool* pool;
    ResponseBuffers* buffers;
    const Stop* stop;
    const Wait* wait;  // knows how long the call has waited
  };

  // `message` is nullopt if the handler may respond without a new message
  // (CallHandler::HasNext() or WaitsForNews()).
  Step(const With& with, std::optional<RequestMessage> message)
      : with_(with), message_(std::move(message)) {}
  ~Step() { DropResponse(); }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Condition for the next call of Advance().
  enum class Need {
    kNothing,  // the step is over
    kPool,     // call Advance() on the pool
    kTurn,     // like kPool, but waiting calls may run first
    kMemory    // claim bytes_to_claim(), then call Claimed()
  };
  // Works until the step is over or the returned condition must be met.
  // `on_pool` says whether the caller is a thread of the pool, which may work
  // for long.
  Need Advance(bool on_pool);

  std::int64_t bytes_to_claim() const { return response_->bytes_to_claim(); }
  // Tells the step the result of the claim of bytes_to_claim().
  void Claimed(const absl::Status& result);

  // The results of a step that is over. has_response() is false if the handler
  // needs another message first, or is done.
  const absl::Status& status() const { return status_; }
  bool has_response() const { return has_response_; }
  grpc::ByteBuffer* output() { return &output_; }
  // Returns the time for which Advance() has run in total.
  absl::Duration computing() const { return computing_; }

 private:
  enum class Stage { kReceive, kRespond, kClaim, kAllocate, kCompute, kOver };

  absl::Status Receive();
  absl::Status Respond();
  absl::Status Allocate();
  absl::Status Compute(bool on_pool);
  absl::Status Finish();
  void Fail();
  absl::Status Tell();
  // Drops the response, and releases the bytes that are claimed for it but not
  // allocated.
  void DropResponse();

  const With with_;
  std::optional<RequestMessage> message_;
  Stage stage_ = Stage::kReceive;
  std::unique_ptr<PendingResponse> response_;
  std::int64_t computed_ = 0;  // number of computed tiles
  absl::Status status_;
  bool has_response_ = false;
  grpc::ByteBuffer output_;
  absl::Duration computing_;
};

}  // namespace posenc::server
