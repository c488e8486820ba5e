// Computes the responses of one call, step by step.
//
// A step takes a message or none, asks the call's handler for the next
// response, claims and allocates its memory, computes its tiles and finishes
// it:
//
//   Start -> Prepare -> (wait for the claim) -> Compute -> Owner::OnComputed
//               |                                   |
//               +-----------------------------------+--> Owner::OnComputeFailed
//
// Small steps run on the thread that called Start(), which is gRPC's; larger
// ones run on the compute pool, because gRPC's threads must return soon. Tiles
// are spread over the pool's idle threads.
//
// Threads: one step is under way at a time, so that its state needs no lock.
// The thread that ends a step hands its effects to the next one through the
// owner's lock. Stop() may be called on any thread at any time.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/runtime/pool.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/memory/request_message.h"
#include "server/memory/response_buffers.h"
#include "server/rpc/claim.h"
#include "server/rpc/handler.h"

namespace posenc::server {

class Execution {
 public:
  // The call. It owns the execution.
  class Owner {
   public:
    // A reference that keeps the call alive while a thread works for it.
    virtual std::shared_ptr<void> KeepAlive() = 0;
    // The message that the step begins with; nullopt if the handler may have
    // another response without one. Called once for each step, when a thread
    // has begun it: until then the message counts among those that wait.
    virtual std::optional<RequestMessage> TakeMessageOfStep() = 0;
    // The step goes on on a thread of the pool, or may wait for its claim.
    // Called before that, perhaps more than once.
    virtual void OnStepLeaves() = 0;
    // Whether the step is the pool's: a thread works on it, or will. Not while
    // it waits for its claim, and not after its end.
    virtual void SetBusy(bool busy) = 0;
    // For how long the call has waited by now, for turns and memory.
    virtual absl::Duration Waited() const = 0;
    // One of these ends each step, without locks. response: null if the handler
    // needs another message first, or is done.
    virtual void OnComputed(grpc::ByteBuffer* response) = 0;
    virtual void OnComputeFailed(const absl::Status& error) = 0;

   protected:
    ~Owner() = default;
  };

  Execution(std::unique_ptr<CallHandler> handler, core::ComputePool* pool,
            ResponseBuffers* buffers, CallClaim* claim, Owner* owner);

  // Starts a step whose message has so many bytes; 0 if there is none. urgent:
  // it goes before the other jobs of the pool. may_run_here: on this thread, if
  // it is small.
  void Start(std::size_t message_bytes, bool urgent, bool may_run_here);

  // The claim that the step waits for was granted, or refused.
  void Claimed(bool granted);

  // Forgets the step, which waits for its claim and need not any more.
  void Abandon();

  // Makes the step under way end soon: tiles that have not started do not run.
  void Stop() { stop_.store(true); }

 private:
  // Has the pool call one of these.
  void Submit(void (Execution::*part)());
  void PrepareOnPool() { Prepare(false); }
  void RespondOnPool() { Respond(false); }
  // inline_only: the step must not block this thread for long. Takes the
  // message in, if there is one, and goes on with Respond().
  void Prepare(bool inline_only);
  // Has the handler make the response that is to be computed.
  void Respond(bool inline_only);
  void Compute();
  absl::Status RunTiles();
  void RefuseClaim(Admission::Entry why);

  const std::unique_ptr<CallHandler> handler_;
  core::ComputePool* const pool_;
  ResponseBuffers* const buffers_;
  CallClaim* const claim_;
  Owner* const owner_;

  std::atomic<bool> stop_{false};
  // Of the step under way.
  bool urgent_ = false;
  std::unique_ptr<PendingResponse> pending_;
};

}  // namespace posenc::server
