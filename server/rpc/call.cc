#include "server/rpc/call.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "grpc/grpc.h"
#include "server/budget/errors.h"
#include "server/convert/status.h"

namespace posenc::server {
namespace {

// A response up to this size is sent together with the status, in one write. A
// larger one goes alone, because a deadline may have to cut it off if its
// reader is too slow.
constexpr std::size_t kFinishWithBytes = 64 << 10;

// Whether messages of this peer came over a socket, so that their memory is the
// server's alone. Those of a client in the same process are the client's own
// memory; gRPC calls such a peer "inproc" or "unknown".
bool IsSocket(const std::string& peer) {
  return absl::StartsWith(peer, "unix") || absl::StartsWith(peer, "ipv4:") ||
         absl::StartsWith(peer, "ipv6:");
}

// Adds which message of a stream is meant.
absl::Status WithIndex(const absl::Status& status, std::int64_t index) {
  return core::WithMetadata(status, "messageIndex", absl::StrCat(index));
}

}  // namespace

void Call::Start(PeerStream* stream, CallSpec spec, const Arrival& arrival,
                 std::unique_ptr<CallHandler> handler,
                 const CallResources& resources) {
  const auto call = std::make_shared<Call>(stream, std::move(spec),
                                           std::move(handler), resources);
  call->self_ = call;
  resources.calls->Add(1);
  if (resources.observer != nullptr) {
    resources.observer->Started(call->spec_.name, call->spec_.stream);
  }
  call->Enter(arrival);
}

Call::Call(PeerStream* stream, CallSpec spec,
           std::unique_ptr<CallHandler> handler, const CallResources& resources)
    : stream_(stream),
      headers_(stream->headers()),
      spec_(std::move(spec)),
      resources_(resources),
      over_socket_(IsSocket(headers_.peer())),
      turn_(resources.turns, this),
      caller_(resources.callers, spec_.caller, spec_.caller_bytes),
      claim_(resources.admission, &caller_, resources.sizes, spec_.method,
             spec_.peer, resources.limits->max_request_bytes, spec_.stream,
             this),
      execution_(std::move(handler), resources.pool, resources.buffers, &claim_,
                 this),
      started_(absl::Now()),
      start_(Clock::now()) {}

CallEnding Call::EndingOf(const absl::Status& status) {
  return {ToGrpcStatus(status), IsOverload(status)};
}

// The call must not finish meanwhile: whoever fails it does not find it waiting
// yet.
void Call::Enter(const Arrival& arrival) {
  stream_->SetReactor(this);
  if (spec_.stream) stream_->Watch();
  if (!headers_.has_deadline()) {
    deadline_ = resources_.deadlines->Add(weak_from_this());
  }
  if (!arrival.announced.ok()) {
    Fail(arrival.announced.status(), false);
  } else {
    announced_ = *arrival.announced;
    if (HasTurn(arrival.turn)) EnterBudget();
  }
  LetGo();
}

bool Call::HasTurn(const Turns::Request& request) {
  if (spec_.stream) return true;
  switch (turn_.Enter(request)) {
    case Turns::Entry::kServed:
    case Turns::Entry::kNotNeeded:
      return true;
    case Turns::Entry::kWaiting: {
      stream_->Watch();
      // Whoever failed the call before it waited did not find it waiting.
      const std::lock_guard<std::mutex> lock(mutex_);
      waited_ = true;
      if (!error_.ok()) turn_.StopWaiting();
      return false;
    }
    case Turns::Entry::kRefused:
      break;
  }
  Fail(TooManyCalls(), false);
  return false;
}

void Call::LetGo() {
  std::unique_lock<std::mutex> lock(mutex_);
  --starting_;
  Step(std::move(lock));
}

void Call::EnterBudget() {
  const absl::Status entered = claim_.Enter(announced_);
  if (!entered.ok()) return Fail(entered, false);
  if (claim_.state() != CallClaim::State::kWaiting) return;
  stream_->Watch();
  bool left = false;
  {
    // Whoever failed the call before it waited did not find it waiting.
    const std::lock_guard<std::mutex> lock(mutex_);
    waited_ = true;
    if (!error_.ok()) left = claim_.StopWaitingToEnter();
  }
  if (left) claim_.AdmitOthers();
}

void Call::OnTurn() {
  bool failed = false, step = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    step = std::exchange(step_waits_, false);
    failed = !error_.ok();
    if (failed && step) computing_ = false;
  }
  if (failed) return Step();
  // On the pool: this thread belongs to the call that made room.
  if (step) return RunStep(false);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (finished_ || !error_.ok()) return;
    ++starting_;
  }
  EnterBudget();
  LetGo();
}

void Call::OnTurnLost() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(step_waits_, false)) computing_ = false;
  }
  Fail(OverBudget("the server could not answer before the deadline"), false);
}

// A message that is read in what is left of its call's time will hardly be
// answered: with calls of 60 MiB at ten times what a busy machine can do, all
// memory went to those at the end of their deadlines, and none was answered.
void Call::OnEntered() {
  const absl::Duration waited =
      absl::Nanoseconds((Clock::now() - start_).count());
  if (headers_.has_deadline() &&
      headers_.TimeLeft() - headers_.waited() < waited) {
    return Fail(OverBudget("the server had no memory for the message in time"),
                false);
  }
  Step();
}

void Call::OnResponseClaimed(bool claimed) {
  EndWaiting();
  execution_.Claimed(claimed);
}

void Call::EndWaiting() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Clock::time_point now = Clock::now();
  waited_ns_ += (now - step_start_).count();
  step_start_ = now;
}

Call::Action Call::Decide() {
  if (finished_) return Action::kNone;
  const bool failed = !error_.ok();
  const CallClaim::State claim = claim_.state();
  if (!failed && claim == CallClaim::State::kInside && !reading_ &&
      !read_all_ && received_.size() < kAhead &&
      InLine() < CallClaim::kMessages) {
    reading_ = asked_ = true;
    ++starting_;
    return Action::kRead;
  }
  if (!failed && !computing_ && computed_.size() < kAhead &&
      (handler_busy_ || !received_.empty())) {
    computing_ = true;
    return Action::kCompute;
  }
  if (!writing_ && !computed_.empty()) {
    writing_ = true;
    ++starting_;
    return Action::kWrite;
  }
  const bool complete =
      failed || (read_all_ && received_.empty() && !handler_busy_);
  if (complete && starting_ == 0 && !computing_ && !writing_ &&
      computed_.empty() && claim != CallClaim::State::kWaiting &&
      turn_.state() != CallTurn::State::kWaiting) {
    finished_ = true;
    return Action::kFinish;
  }
  return Action::kNone;
}

std::size_t Call::InLine() const {
  return received_.size() + (computing_ ? 1 : 0) + computed_.size() +
         (writing_ ? 1 : 0);
}

void Call::Step(std::unique_lock<std::mutex> lock) {
  while (true) {
    const Action action = Decide();
    switch (action) {
      case Action::kNone:
        return;
      case Action::kCompute: {
        const std::int64_t bytes = NextMessageBytes();
        lock.unlock();
        StartStep(bytes);
        return;  // the end of that step calls Step() again
      }
      case Action::kRead:
        if (waited_ && messages_ == 0) {
          waited_ns_ += (Clock::now() - start_).count();
        }
        lock.unlock();
        resources_.transfers->Add(Transfers::Direction::kIn,
                                  announced_.value_or(0), spec_.stream, this,
                                  &reading_message_);
        stream_->StartRead();
        lock.lock();
        --starting_;
        break;
      case Action::kWrite: {
        grpc::ByteBuffer outgoing;
        outgoing.Swap(&computed_.front());
        computed_.erase(computed_.begin());
        const std::size_t bytes = outgoing.Length();
        const bool last = error_.ok() && !spec_.stream && read_all_ &&
                          !reading_ && starting_ == 1 && !handler_busy_ &&
                          bytes <= kFinishWithBytes;
        finished_ = last;
        ++written_;
        bytes_out_ += static_cast<std::int64_t>(bytes);
        EndWork();
        lock.unlock();
        resources_.transfers->Add(Transfers::Direction::kOut,
                                  static_cast<std::int64_t>(bytes),
                                  spec_.stream, this, &writing_message_);
        if (last) {
          stream_->StartWriteAndFinish(outgoing);
          return;  // the call may be gone
        }
        stream_->Watch();
        stream_->StartWrite(outgoing);
        outgoing.Clear();
        lock.lock();
        --starting_;
        break;
      }
      case Action::kFinish: {
        const absl::Status error = AsTold(spec_, error_);
        lock.unlock();
        stream_->Finish(error.ok() ? CallEnding() : EndingOf(error));
        return;  // the call may be gone
      }
    }
  }
}

absl::StatusOr<RequestMessage> Call::TakeMessage() {
  const auto bytes = static_cast<std::int64_t>(stream_->message_bytes());
  bytes_in_ += bytes;
  std::vector<grpc::Slice> slices = stream_->TakeMessage();
  const absl::Status received = claim_.Received(bytes);
  if (!received.ok()) return received;
  if (!spec_.stream && bytes > Transfers::kUncountedBytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    worked_on_ = bytes;
    resources_.transfers->AddWorkedOn(bytes);
  }
  return RequestMessage(std::move(slices), over_socket_, &claim_);
}

void Call::OnReadDone(bool ok) {
  {
    // ShrinkClaim() looks whether the message is still coming, and gives its
    // claim up, under this lock: not while the claim is being corrected.
    const std::lock_guard<std::mutex> lock(mutex_);
    resources_.transfers->Remove(&reading_message_);
  }
  absl::StatusOr<RequestMessage> message = RequestMessage();
  if (ok) message = TakeMessage();
  absl::Status error;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    reading_ = false;
    if (!ok) {
      read_all_ = true;
      if (messages_ == 0) {
        error = stream_->IsCancelled()
                    ? absl::CancelledError("cancelled")
                    : core::FieldRequired("", "no message was sent");
      }
    } else if (!message.ok()) {
      error = spec_.stream ? WithIndex(message.status(), messages_)
                           : message.status();
    } else {
      ++messages_;
      if (!spec_.stream) read_all_ = true;
      if (error_.ok()) received_.push_back(*std::move(message));
    }
    // The error is set under the same lock as reading_: a Step() on another
    // thread would find an idle call without error, and finish it with OK.
    if (error.ok()) return Step(std::move(lock));
    if (error_.ok()) error_ = error;
  }
  Fail(std::move(error), false);
}

// A stream takes a turn for each step, and a unary call that has none takes one
// if its message is large.
void Call::StartStep(std::int64_t bytes) {
  step_start_ = Clock::now();
  if (!spec_.stream && (turn_.state() != CallTurn::State::kNone ||
                        bytes <= CallCosts::kCheapBytes)) {
    execution_.Start(static_cast<std::size_t>(bytes), turn_.light(), true);
    return;
  }
  stream_->Watch();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    step_waits_ = true;
  }
  Turns::Request request = TurnRequest(headers_, spec_, resources_, bytes,
                                       absl::FromChrono(step_start_ - start_));
  request.announced = 0;  // nothing is to be read any more
  request.refusable = false;
  if (turn_.Enter(request) == Turns::Entry::kWaiting) {
    // Whoever failed the call before it waited did not find it waiting.
    if (LeaveTurnIfFailed()) Step();
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    step_waits_ = false;
  }
  RunStep(true);
}

bool Call::LeaveTurnIfFailed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_.ok() || !turn_.StopWaiting()) return false;
  step_waits_ = computing_ = false;
  return true;
}

// The message may be gone when the step begins: an error drops those that wait.
void Call::RunStep(bool may_run_here) {
  EndWaiting();
  std::int64_t bytes = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes = NextMessageBytes();
  }
  execution_.Start(static_cast<std::size_t>(bytes), turn_.light(),
                   may_run_here);
}

std::int64_t Call::NextMessageBytes() const {
  if (handler_busy_ || received_.empty()) return 0;
  return static_cast<std::int64_t>(received_.front().bytes());
}

// Before computing_ is cleared: the next step takes a turn of its own.
void Call::EndStep(std::int64_t moved) {
  const std::chrono::nanoseconds computing = Clock::now() - step_start_;
  computing_ns_ += computing.count();
  turn_.SetBusy(false);
  if (spec_.stream) turn_.Leave(moved, 1e-9 * computing.count());
}

std::optional<RequestMessage> Call::TakeMessageOfStep() {
  std::optional<RequestMessage> message;
  const std::lock_guard<std::mutex> lock(mutex_);
  step_bytes_ = NextMessageBytes();
  if (!handler_busy_ && !received_.empty()) {
    message = std::move(received_.front());
    received_.erase(received_.begin());
  }
  index_ = messages_ - 1 - static_cast<std::int64_t>(received_.size());
  return message;
}

void Call::OnComputed(grpc::ByteBuffer* response) {
  EndStep(step_bytes_ + static_cast<std::int64_t>(
                            response == nullptr ? 0 : response->Length()));
  std::unique_lock<std::mutex> lock(mutex_);
  computing_ = false;
  // A unary call has one response: asking for another would be a step.
  handler_busy_ = response != nullptr && spec_.stream;
  if (response != nullptr && error_.ok()) {
    computed_.emplace_back();
    computed_.back().Swap(response);
  }
  Step(std::move(lock));
}

void Call::OnComputeFailed(const absl::Status& error) {
  EndStep(Turns::kFailed);
  const absl::Status named = spec_.stream ? WithIndex(error, index_) : error;
  {
    // Sets the error and clears computing_ under one lock: a Step() in between
    // would find an idle call without error, and finish it with OK.
    const std::lock_guard<std::mutex> lock(mutex_);
    computing_ = false;
    if (error_.ok()) error_ = named;
  }
  Fail(named, false);
}

void Call::OnWriteDone(bool ok) {
  resources_.transfers->Remove(&writing_message_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
  }
  if (!ok) return Fail(absl::CancelledError("the client is gone"), true);
  // A client may have waited for this response before it sends on.
  resources_.transfers->Touch(&reading_message_);
  Step();
}

void Call::Fail(absl::Status error, bool drop_responses) {
  const std::shared_ptr<Call> self = shared_from_this();
  // Destroyed without lock, because their memory goes to others who wait for
  // it.
  decltype(received_) received;
  decltype(computed_) computed;
  bool left = false, abandon = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // The error is set before the step under way is stopped: the step reports
    // that it was cancelled, which must not be what the client is told.
    if (error_.ok() && !done_) error_ = std::move(error);
    execution_.Stop();
    received.swap(received_);
    if (drop_responses) computed.swap(computed_);
    if (turn_.StopWaiting() && std::exchange(step_waits_, false)) {
      computing_ = false;
    }
    left = claim_.StopWaitingToEnter();
    abandon = claim_.StopWaitingForResponse();
  }
  if (left || abandon) claim_.AdmitOthers();
  if (abandon) {
    // The step waited for its claim, so no thread works on it: it ends here.
    execution_.Abandon();
    const std::lock_guard<std::mutex> lock(mutex_);
    computing_ = false;
  }
  Step();
}

void Call::OnCancel() { Fail(absl::CancelledError("cancelled"), true); }

// gRPC's call is kept by a reference of its own, because cancelling may run
// reactions on this thread, and so cannot be done under the lock.
void Call::CancelAtPeer() {
  grpc_call* call = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (done_) return;
    call = stream_->c_call();
    grpc_call_ref(call);
  }
  grpc_call_cancel_with_status(call, GRPC_STATUS_CANCELLED,
                               "cancelled by the server", nullptr);
  grpc_call_unref(call);
}

void Call::Expire() {
  bool finished = false, cut = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    finished = finished_;
    cut = writing_ || finished_;
  }
  // A response that its reader does not take would be under way for ever.
  if (cut) CancelAtPeer();
  if (finished) return;
  Fail(absl::DeadlineExceededError(
           "the client set no deadline, and the server's own has passed"),
       true);
}

void Call::ShrinkClaim(std::uint64_t message) {
  std::int64_t unused = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (reading_message_.number() != message || finished_ || InLine() > 0) {
      return;
    }
    unused = claim_.Shrink();
  }
  if (unused > 0) resources_.admission->Release(unused);
}

void Call::ExpectMore(std::uint64_t message, std::int64_t holds) {
  if (reading_message_.number() == message) claim_.ExpectMore(holds);
}

bool Call::CutOff(Transfers::Direction direction, std::uint64_t message,
                  const absl::Status& why) {
  // gRPC stops reading when the call finishes, which it cannot do before its
  // responses are taken.
  bool at_peer = direction == Transfers::Direction::kOut;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if ((at_peer ? writing_message_ : reading_message_).number() != message ||
        (!at_peer && finished_)) {
      return false;
    }
    at_peer = at_peer || writing_ || !computed_.empty();
  }
  if (at_peer) CancelAtPeer();
  Fail(why, at_peer);
  return true;
}

void Call::EndWork() {
  if (worked_on_ == 0) return;
  resources_.transfers->AddWorkedOn(-std::exchange(worked_on_, 0));
}

void Call::OnDone() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    EndWork();
  }
  resources_.transfers->Remove(&reading_message_);
  resources_.transfers->Remove(&writing_message_);
  if (deadline_) resources_.deadlines->Remove(*deadline_);
  claim_.Release();
  turn_.Leave(error_.ok() ? bytes_in_ + bytes_out_
              : asked_    ? Turns::kFailed
                          : Turns::kNotWorkedOn,
              1e-9 * computing_ns_.load());
  if (resources_.observer != nullptr) Observe();
  resources_.calls->Add(-1);
  self_.reset();
}

void Call::Observe() {
  const absl::Status told = AsTold(spec_, error_);
  const std::string reason = ReasonName(told);
  CallRecord record = RecordOf(headers_, spec_, told, reason);
  record.started = started_;
  record.handling = absl::Nanoseconds((Clock::now() - start_).count());
  record.waited = absl::Nanoseconds(waited_ns_.load());
  record.computing = absl::Nanoseconds(computing_ns_.load());
  record.messages_received = messages_;
  record.messages_sent = written_;
  record.bytes_received = bytes_in_;
  record.bytes_sent = bytes_out_;
  resources_.observer->Finished(record);
}

}  // namespace posenc::server
