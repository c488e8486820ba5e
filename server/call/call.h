// One coroutine serves a call from its headers to its end. ServeCalls() and
// AnswerUnary() in call.cc contain all steps in order:
//
//   headers -> caller and method -> a place at work -> memory -> the message
//   -> the response, on this thread or on the pool -> the answer -> the status
//
// A stream reads, computes and writes at the same time, in three coroutines
// that pass messages on:
//
//   ReadAll -- received --> ComputeAll -- computed --> WriteAll
//
// When the call's Stop is requested, the call no longer waits for a place,
// memory, a message or another coroutine. A computation on the pool ends before
// its next tile. A write ends when gRPC has taken the message, or has cancelled
// the call.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/runtime/pool.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/base/steady_time.h"
#include "server/call/call_headers.h"
#include "server/call/call_memory.h"
#include "server/call/call_observer.h"
#include "server/call/call_stream.h"
#include "server/call/handler.h"
#include "server/call/handover.h"
#include "server/call/loop.h"
#include "server/call/open_calls.h"
#include "server/call/step.h"
#include "server/call/stop.h"
#include "server/call/task.h"
#include "server/call/wait.h"
#include "server/memory/held_memory.h"
#include "server/memory/request_message.h"
#include "server/memory/response_buffers.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/caller_budgets.h"
#include "server/scheduling/limits.h"
#include "server/scheduling/places.h"

namespace posenc::server {

// Objects that all calls share. They must outlive the calls.
struct CallResources {
  // `methods` is the number of methods.
  CallResources(const Limits& limits, int methods,
                std::vector<CallObserver*> observers);

  const Limits limits;
  const std::vector<CallObserver*> observers;
  grpc::AsyncGenericService generic;
  std::atomic<int> calls{0};  // in progress, except exempt and refused calls
  // Responses that a client in this process still holds own it, too.
  const std::shared_ptr<Admission> admission;
  ResponseBuffers buffers;
  HeldMemory held;
  CallerBudgets callers;
  std::atomic<std::int64_t> default_deadline_ns;
  Places places;
  // The pool is destroyed first, because its threads use the other members.
  core::ComputePool pool;
};

// Gives calls their resources, and finds their methods.
class CallService {
 public:
  virtual CallResources* resources() = 0;
  // Finds the method and the caller. Fills in `handler`, and the fields of
  // `spec` that are known before the first error. After an error, the call is
  // refused. `slot` becomes the call's slot on its connection. If the
  // connection has too many calls, the slot is empty and the status is an
  // error.
  virtual absl::Status Route(const CallHeaders& headers, CallSpec* spec,
                             OpenCalls::Slot* slot,
                             std::unique_ptr<CallHandler>* handler) = 0;

 protected:
  ~CallService() = default;
};

// Waits for one call and serves it. When this call arrives, starts another
// ServeCalls(), which waits for the next call. Must be called on the loop's
// thread, or before this thread starts.
Detached ServeCalls(CallService* service, Loop* loop);

// The state of one call.
class Call final : private Loop::Ticked {
 public:
  Call(CallService* service, Loop* loop, CallStream* stream, Stop* stop);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Checks the headers. If it returns an error, the call is refused.
  absl::Status CheckHeaders();
  // Answers an accepted call. Returns the error that ends the call, or OK.
  // After OK, the status must still be sent if status_written() is false.
  Task Answer() { return spec_.stream ? AnswerStream() : AnswerUnary(); }
  // Returns whether the status was sent with the last message.
  bool status_written() const { return status_written_; }
  // Returns the status that the client gets. Frees the call's memory before the
  // status is sent, because the peer may never read the status.
  grpc::Status Conclude(const absl::Status& status);
  // Reports the call to the observers, after gRPC has released the call. `gone`
  // is the reason why the call was cancelled, or OK.
  void Report(absl::Status status, const absl::Status& gone);

 private:
  // A message that is being read or written.
  struct UnderWay {
    absl::Time since = absl::InfiniteFuture();  // infinite if none
    std::int64_t bytes = 0;
  };

  absl::Status Route();  // the checks of CheckHeaders()
  Task AnswerUnary();
  Task AnswerStream();
  Task ReadAll(Handover<RequestMessage>* received);
  Task ComputeAll(Handover<RequestMessage>* received,
                  Handover<grpc::ByteBuffer>* computed);
  Task WriteAll(Handover<grpc::ByteBuffer>* computed);
  // Runs the step with a place, on this thread or on the pool.
  Task Run(Step* step);

  // Each of these functions begins an operation. The coroutine then awaits
  // `wait_` or the returned object. The object must be a variable (see ADR 12).
  void EnterPlace(bool refusable);
  void ClaimMemory();
  auto Read();
  auto Write(grpc::ByteBuffer* message, bool with_status);
  // These functions convert the co_await's value to the operation's result.
  absl::Status CheckTimeLeft(const absl::Status& status) const;
  absl::StatusOr<RequestMessage> TakeMessage(bool came);
  absl::Status Written(bool taken);

  Step::With StepWith();
  // Releases the place. Run() asks for a new place if the call goes on.
  // `computed` is the computing time after a success, and nullopt otherwise.
  // Places::Leave() explains `unread`.
  void LeavePlace(std::optional<absl::Duration> computed,
                  absl::Duration unread = absl::ZeroDuration());
  bool HoldsTooMuch(absl::Time now) const;
  absl::Duration DefaultDeadline() const;
  void Tick(absl::Time now) override;
  // Ends the call because of the message that is being read or written.
  void CutOff(const absl::Status& why);
  void Observe(const absl::Status& told);

  CallService* const service_;
  CallResources& resources_;
  Loop* const loop_;
  CallStream* const stream_;
  Stop* const stop_;
  const CallHeaders headers_;
  const absl::Time started_ = SteadyNow();
  CallSpec spec_;
  std::unique_ptr<CallHandler> handler_;
  std::optional<std::int64_t> announced_;
  bool sized_ = false;  // false: the claim is for a small message
  std::optional<CallMemory> memory_;
  OpenCalls::Slot slot_;
  Places::Ticket place_;
  double deadline_ = 0;     // Places::Request::deadline
  bool must_enter_ = true;  // Run() must ask for a place
  Wait wait_;
  bool counted_ = false;  // CallResources::calls counts this call
  bool status_written_ = false;
  UnderWay reading_, writing_;
  // Number of a stream's messages whose last response is computed.
  std::int64_t answered_ = 0;

  // The coroutines count messages, bytes and computing time here. Observe()
  // sets the other fields.
  CallRecord record_;
};

}  // namespace posenc::server
