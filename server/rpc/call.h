// One call in progress: takes its turn, reads messages, has responses computed,
// and writes them, each while the others go on, a few messages ahead at most.
//
//             received_ (<= kAhead)          computed_ (<= kAhead)
//   gRPC --read--> [m][m] --Execution--> [r][r] --write--> gRPC
//
// A message and its response count as one of CallClaim::kMessages wherever they
// are in this line, so that the claim covers them.
//
// gRPC calls the On...() functions on any of its threads. At most one read and
// one write are under way. Every change ends in Step(), which does whatever can
// be done now; Decide() is the whole policy.
//
// Invariants, under mutex_:
// - reading_, computing_, writing_: one operation of that kind is under way;
//   whoever ends it clears the flag.
// - starting_ counts threads that have decided on a gRPC operation, or to enter
//   a queue, and not yet returned from starting it. gRPC may run its reaction
//   inside the call that starts it, so no lock is held there; the call must not
//   finish meanwhile.
// - error_, once set, stays. No read and no step is decided on after it;
//   responses that were computed before it are still written, unless Fail()
//   drops them.
// - finished_ is set, exactly once, before Finish() or StartWriteAndFinish() is
//   called. No step is under way then and nothing else is to be written; a read
//   may still be under way after an error. Neither the claim nor the turn
//   waits.
// - done_ is set when gRPC is about to forget the call: nothing of gRPC's may
// be
//   used after it.
// - handler_busy_: the handler's last step gave a response, so it may have more
//   without another message.
//
// Lifetime: gRPC keeps a plain pointer until OnDone(). The call owns itself by
// self_ until then; whoever works for it on another thread holds another
// reference (KeepAlive). Transfers and Deadlines forget the call before that.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/runtime/pool.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/budget/admission.h"
#include "server/budget/caller_budgets.h"
#include "server/budget/calls_in_progress.h"
#include "server/budget/deadlines.h"
#include "server/budget/limits.h"
#include "server/budget/message_sizes.h"
#include "server/budget/transfers.h"
#include "server/budget/turns.h"
#include "server/memory/request_message.h"
#include "server/memory/response_buffers.h"
#include "server/rpc/call_ending.h"
#include "server/rpc/call_headers.h"
#include "server/rpc/call_observer.h"
#include "server/rpc/call_spec.h"
#include "server/rpc/claim.h"
#include "server/rpc/execution.h"
#include "server/rpc/handler.h"
#include "server/rpc/peer_stream.h"
#include "server/rpc/turn.h"

namespace posenc::server {

// What calls share. Outlives them.
struct CallResources {
  core::ComputePool* pool;
  Admission* admission;
  CallerBudgets* callers;
  MessageSizes* sizes;
  Transfers* transfers;
  Turns* turns;
  ResponseBuffers* buffers;
  Deadlines* deadlines;
  CallsInProgress* calls;
  const Limits* limits;
  CallObserver* observer;  // null: nobody wants to know
};

class Call final : public PeerStream::Reactor,
                   public CallClaim::Owner,
                   public CallTurn::Owner,
                   public Transfers::Owner,
                   public Execution::Owner,
                   public Deadlines::Owner,
                   public std::enable_shared_from_this<Call> {
 public:
  // What its headers say about when and whether a call may be served.
  struct Arrival {
    // See AnnouncedBytes().
    absl::StatusOr<std::optional<std::int64_t>> announced;
    Turns::Request turn;  // of a unary call whose announcement is good
  };
  static Arrival ArrivalOf(const CallHeaders& headers, const CallSpec& spec,
                           const CallResources& resources);

  // Whether the call would be refused for want of time: an answer before
  // anything is made for it.
  static bool IsTooLate(const Arrival& arrival, const CallSpec& spec,
                        const CallResources& resources);

  // Starts a call that deletes itself when gRPC is done with it.
  static void Start(PeerStream* stream, CallSpec spec, const Arrival& arrival,
                    std::unique_ptr<CallHandler> handler,
                    const CallResources& resources);

  // How calls end that fail with this status.
  static CallEnding EndingOf(const absl::Status& status);

  // For Start() only.
  Call(PeerStream* stream, CallSpec spec, std::unique_ptr<CallHandler> handler,
       const CallResources& resources);

 private:
  static constexpr std::size_t kAhead = CallClaim::kAhead;

  enum class Action { kNone, kRead, kCompute, kWrite, kFinish };

  // gRPC's reactions.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  std::shared_ptr<void> KeepAlive() override { return shared_from_this(); }
  // The turn's.
  void OnTurn() override;
  void OnTurnLost() override;
  // The claim's.
  void OnEntered() override;
  void OnResponseClaimed(bool claimed) override;
  // The execution's.
  std::optional<RequestMessage> TakeMessageOfStep() override;
  void OnStepLeaves() override { stream_->Watch(); }
  void SetBusy(bool busy) override { turn_.SetBusy(busy); }
  absl::Duration Waited() const override {
    return absl::Nanoseconds(waited_ns_.load());
  }
  void OnComputed(grpc::ByteBuffer* response) override;
  void OnComputeFailed(const absl::Status& error) override;
  // The deadline's.
  void Expire() override;
  // Of the messages under way.
  std::uint64_t PeerId() const override { return spec_.peer; }
  void ShrinkClaim(std::uint64_t message) override;
  void ExpectMore(std::uint64_t message, std::int64_t holds) override;
  bool CutOff(Transfers::Direction direction, std::uint64_t message,
              const absl::Status& why) override;

  void Enter(const Arrival& arrival);
  // Whether the call may go on at once: it has its turn, or needs none.
  bool HasTurn(const Turns::Request& request);
  // The call is held meanwhile, by starting_.
  void EnterBudget();
  // The call may finish from now on.
  void LetGo();
  // Does whatever can be done now. Called after every change, without lock or
  // with the call's.
  void Step() { Step(std::unique_lock<std::mutex>(mutex_)); }
  void Step(std::unique_lock<std::mutex> lock);
  // Chooses what is to be done next, and marks it as under way. Expects the
  // lock.
  Action Decide();
  // bytes: of the message that the step begins with.
  void StartStep(std::int64_t bytes);
  // Stops a step from waiting for its turn if the call has failed.
  bool LeaveTurnIfFailed();
  // Runs the step, which has waited for its turn and has it.
  // The step waited until now, for its turn or for memory.
  void EndWaiting();
  void RunStep(bool may_run_here);
  // A step has ended, which moved so many bytes, or failed (negative).
  void EndStep(std::int64_t moved);
  // Of the message that the next step begins with. Expects the lock.
  std::int64_t NextMessageBytes() const;
  // Messages in the line, but for the one that is being read. Expects the lock.
  std::size_t InLine() const;
  // Ends the call at gRPC's side, whatever is under way there.
  void CancelAtPeer();
  // What Turns is told of a call of this age, or of a step with so many bytes.
  static Turns::Request TurnRequest(const CallHeaders& headers,
                                    const CallSpec& spec,
                                    const CallResources& resources,
                                    std::optional<std::int64_t> announced,
                                    absl::Duration age);
  void Observe();
  // The message that gRPC has read, checked against limits and claim.
  absl::StatusOr<RequestMessage> TakeMessage();
  // The answer goes, or the call ends. Expects the lock.
  void EndWork();
  // Ends the call with this error (the first one counts), at once or after the
  // responses that have been computed before it.
  void Fail(absl::Status error, bool drop_responses);

  using Clock = std::chrono::steady_clock;

  PeerStream* const stream_;
  const CallHeaders& headers_;  // of the stream
  const CallSpec spec_;
  const CallResources resources_;
  const bool over_socket_;
  CallTurn turn_;
  CallerBudgets::Share caller_;
  CallClaim claim_;
  Execution execution_;
  std::shared_ptr<Call> self_;
  std::optional<Deadlines::Entry> deadline_;

  Transfers::Message reading_message_, writing_message_;
  std::int64_t worked_on_ = 0;  // bytes, as Transfers was told
  std::optional<std::int64_t> announced_;

  std::mutex mutex_;
  int starting_ = 1;  // Enter()
  bool reading_ = false, read_all_ = false;
  bool computing_ = false;
  bool handler_busy_ = false;
  bool writing_ = false;
  bool waited_ = false;      // before it was read
  bool step_waits_ = false;  // for its turn; computing_ is set
  bool asked_ = false;       // for its first message
  bool finished_ = false;
  bool done_ = false;
  std::int64_t messages_ = 0;  // received, counted from 1
  std::int64_t written_ = 0;   // messages
  std::int64_t bytes_in_ = 0, bytes_out_ = 0;
  // The first is next.
  absl::InlinedVector<RequestMessage, kAhead> received_;
  absl::InlinedVector<grpc::ByteBuffer, kAhead> computed_;
  absl::Status error_;

  // For the observer. Each is written by one thread at a time.
  const absl::Time started_;
  const Clock::time_point start_;
  Clock::time_point step_start_;
  std::atomic<std::int64_t> waited_ns_{0}, computing_ns_{0};

  // Index and size of the message that the step under way computes. Used by
  // that step alone.
  std::int64_t index_ = 0;
  std::int64_t step_bytes_ = 0;
};

}  // namespace posenc::server
