// One call in progress: reads messages, has responses computed, and writes
// them, each while the others go on, a few messages ahead at most.
//
//             received_ (<= kAhead)          computed_ (<= kAhead)
//   gRPC --read--> [m][m] --Execution--> [r][r] --write--> gRPC
//
// gRPC calls the On...() functions on any of its threads. At most one read and
// one write are under way. Every change ends in Step(), which does whatever can
// be done now; Decide() is the whole policy.
//
// Invariants, under mutex_:
// - reading_, computing_, writing_: one operation of that kind is under way;
//   whoever ends it clears the flag.
// - starting_ counts threads that have decided on a gRPC operation and not yet
//   returned from starting it. gRPC may run its reaction inside the call that
//   starts it, so no lock is held there; the call must not finish meanwhile.
// - error_, once set, stays. No read and no step is decided on after it;
//   responses that were computed before it are still written, unless Fail()
//   drops them.
// - finished_ is set, exactly once, before Finish() or StartWriteAndFinish() is
//   called. No step is under way then and nothing else is to be written; a read
//   may still be under way after an error. The claim does not wait to enter.
// - handler_busy_: the handler's last step gave a response, so it may have more
//   without another message.
//
// Lifetime: gRPC keeps a plain pointer until OnDone(). The call owns itself by
// self_ until then; whoever works for it on another thread holds another
// reference (KeepAlive).

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/runtime/pool.h"
#include "grpcpp/generic/async_generic_service.h"
#include "server/budget/admission.h"
#include "server/budget/calls_in_progress.h"
#include "server/budget/deadlines.h"
#include "server/budget/limits.h"
#include "server/memory/request_message.h"
#include "server/memory/response_buffers.h"
#include "server/rpc/claim.h"
#include "server/rpc/execution.h"
#include "server/rpc/handler.h"

namespace posenc::server {

// What calls share. Outlives them.
struct CallResources {
  core::ComputePool* pool;
  Admission* admission;
  ResponseBuffers* buffers;
  Deadlines* deadlines;
  CallsInProgress* calls;
  const Limits* limits;
};

class Call final : public grpc::ServerGenericBidiReactor,
                   public CallClaim::Owner,
                   public Execution::Owner,
                   public Deadlines::Owner,
                   public std::enable_shared_from_this<Call> {
 public:
  // One message each way, or streams of them.
  enum class Kind { kUnary, kStream };

  // Starts a call that deletes itself when gRPC is done with it.
  static grpc::ServerGenericBidiReactor* Start(
      grpc::CallbackServerContext* context, Kind kind,
      std::unique_ptr<CallHandler> handler, const CallResources& resources);

  // For Start() only.
  Call(grpc::CallbackServerContext* context, Kind kind,
       std::unique_ptr<CallHandler> handler, const CallResources& resources);

 private:
  static constexpr std::size_t kAhead = CallClaim::kAhead;

  enum class Action { kNone, kRead, kCompute, kWrite, kFinish };

  // gRPC's reactions.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  std::shared_ptr<void> KeepAlive() override { return shared_from_this(); }
  // The claim's.
  void OnEntered() override;
  void OnResponseClaimed(bool claimed) override;
  // The execution's.
  std::optional<RequestMessage> TakeMessageOfStep() override;
  void OnComputed(grpc::ByteBuffer* response) override;
  void OnComputeFailed(const absl::Status& error) override;
  // The deadline's.
  void Expire() override;

  void Enter();
  // Does whatever can be done now. Called after every change, without lock.
  void Step();
  // Chooses what is to be done next, and marks it as under way. Expects the
  // lock.
  Action Decide();
  void StartStep();
  // The message that gRPC has read, checked against limits and claim.
  absl::StatusOr<RequestMessage> TakeMessage();
  // Ends the call with this error (the first one counts), at once or after the
  // responses that have been computed before it.
  void Fail(absl::Status error, bool drop_responses);

  grpc::CallbackServerContext* const context_;
  const Kind kind_;
  const CallResources resources_;
  const bool in_process_;
  CallClaim claim_;
  Execution execution_;
  std::shared_ptr<Call> self_;
  std::optional<Deadlines::Entry> deadline_;

  std::mutex mutex_;
  int starting_ = 0;
  bool reading_ = false, read_all_ = false;
  bool computing_ = false;
  bool handler_busy_ = false;
  bool writing_ = false;
  bool finished_ = false;
  std::int64_t messages_ = 0;  // received, counted from 1
  // The first is next.
  absl::InlinedVector<RequestMessage, kAhead> received_;
  absl::InlinedVector<grpc::ByteBuffer, kAhead> computed_;
  absl::Status error_;

  // Index of the message that the step under way computes. Used by that step
  // alone.
  std::int64_t index_ = 0;
  // gRPC reads into the one and writes from the other.
  grpc::ByteBuffer incoming_, outgoing_;
};

}  // namespace posenc::server
