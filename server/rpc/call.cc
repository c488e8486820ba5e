#include "server/rpc/call.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "posenc/wire/metadata.h"
#include "server/budget/errors.h"
#include "server/convert/status.h"

namespace posenc::server {
namespace {

// A response up to this size is sent together with the status, in one write. A
// larger one goes alone, because a deadline may have to cut it off if its
// reader is too slow.
constexpr std::size_t kFinishWithBytes = 64 << 10;

// Tells clients' retries to wait (gRFC A6), and how long: about what the
// largest request takes.
constexpr char kPushback[] = "grpc-retry-pushback-ms";
constexpr char kPushbackMs[] = "1000";

// Reads the announced size of the largest message, if there is one.
absl::StatusOr<std::optional<std::int64_t>> AnnouncedBytes(
    const grpc::CallbackServerContext& context, std::int64_t limit) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(wire::kMessageBytes);
  if (found == metadata.end()) return std::nullopt;
  const absl::string_view text(found->second.data(), found->second.size());
  std::uint64_t bytes = 0;
  if (!absl::SimpleAtoi(text, &bytes)) {
    return core::FieldInvalid(
        wire::kMessageBytes,
        absl::StrCat("'", absl::CHexEscape(text),
                     "'; must be a number, the bytes of the largest message"));
  }
  const absl::Status size = CheckRequest(bytes, limit);
  if (!size.ok()) return size;
  return static_cast<std::int64_t>(bytes);
}

bool IsOverload(const absl::Status& status) {
  const auto details = core::GetErrorDetails(status);
  return details && details->reason == core::ErrorReason::kOverloaded;
}

// Adds which message of a stream is meant.
absl::Status WithIndex(const absl::Status& status, std::int64_t index) {
  auto details = core::GetErrorDetails(status);
  if (!details) return status;
  absl::string_view fact = status.message();
  const std::string prefix = absl::StrCat(details->field, ": ");
  if (!details->field.empty() && absl::StartsWith(fact, prefix)) {
    fact.remove_prefix(prefix.size());
  }
  details->metadata.emplace_back("messageIndex", absl::StrCat(index));
  return core::MakeError(status.code(), details->reason, details->field, fact,
                         details->metadata);
}

}  // namespace

grpc::ServerGenericBidiReactor* Call::Start(
    grpc::CallbackServerContext* context, Kind kind,
    std::unique_ptr<CallHandler> handler, const CallResources& resources) {
  const auto call =
      std::make_shared<Call>(context, kind, std::move(handler), resources);
  call->self_ = call;
  resources.calls->Add(1);
  call->Enter();
  return call.get();
}

Call::Call(grpc::CallbackServerContext* context, Kind kind,
           std::unique_ptr<CallHandler> handler, const CallResources& resources)
    : context_(context),
      kind_(kind),
      resources_(resources),
      in_process_(absl::StartsWith(context->peer(), "inproc")),
      claim_(resources.admission, resources.limits->max_request_bytes,
             kind == Kind::kStream, this),
      execution_(std::move(handler), resources.pool, resources.buffers, &claim_,
                 this) {}

void Call::Enter() {
  if (context_->deadline() == std::chrono::system_clock::time_point::max()) {
    deadline_ = resources_.deadlines->Add(weak_from_this());
  }
  const absl::StatusOr<std::optional<std::int64_t>> announced =
      AnnouncedBytes(*context_, resources_.limits->max_request_bytes);
  if (!announced.ok()) return Fail(announced.status(), false);
  const absl::Status entered = claim_.Enter(*announced);
  if (!entered.ok()) return Fail(entered, false);
  Step();
}

void Call::OnEntered() { Step(); }

void Call::OnResponseClaimed(bool claimed) { execution_.Claimed(claimed); }

Call::Action Call::Decide() {
  if (finished_) return Action::kNone;
  const bool failed = !error_.ok();
  const CallClaim::State claim = claim_.state();
  if (!failed && claim == CallClaim::State::kInside && !reading_ &&
      !read_all_ && received_.size() < kAhead) {
    reading_ = true;
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
    outgoing_.Swap(&computed_.front());
    computed_.erase(computed_.begin());
    ++starting_;
    return Action::kWrite;
  }
  const bool complete =
      failed || (read_all_ && received_.empty() && !handler_busy_);
  if (complete && starting_ == 0 && !computing_ && !writing_ &&
      computed_.empty() && claim != CallClaim::State::kWaiting) {
    finished_ = true;
    return Action::kFinish;
  }
  return Action::kNone;
}

void Call::Step() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    const Action action = Decide();
    switch (action) {
      case Action::kNone:
        return;
      case Action::kCompute:
        lock.unlock();
        StartStep();
        return;  // the end of that step calls Step() again
      case Action::kRead:
        lock.unlock();
        StartRead(&incoming_);
        lock.lock();
        --starting_;
        break;
      case Action::kWrite: {
        const bool last = error_.ok() && kind_ == Kind::kUnary && read_all_ &&
                          !reading_ && starting_ == 1 && !handler_busy_ &&
                          outgoing_.Length() <= kFinishWithBytes;
        finished_ = last;
        lock.unlock();
        if (last) {
          StartWriteAndFinish(&outgoing_, grpc::WriteOptions(),
                              grpc::Status::OK);
          return;  // the call may be gone
        }
        StartWrite(&outgoing_);
        lock.lock();
        --starting_;
        break;
      }
      case Action::kFinish: {
        const absl::Status error = error_;
        lock.unlock();
        if (IsOverload(error)) {
          context_->AddTrailingMetadata(kPushback, kPushbackMs);
        }
        Finish(ToGrpcStatus(error));
        return;  // the call may be gone
      }
    }
  }
}

absl::StatusOr<RequestMessage> Call::TakeMessage() {
  const absl::Status received =
      claim_.Received(static_cast<std::int64_t>(incoming_.Length()));
  if (!received.ok()) return received;
  std::vector<grpc::Slice> slices;
  if (!incoming_.Dump(&slices).ok()) {
    return absl::InternalError("gRPC gave a message that cannot be read");
  }
  incoming_.Clear();
  return RequestMessage(std::move(slices), !in_process_);
}

void Call::OnReadDone(bool ok) {
  absl::StatusOr<RequestMessage> message = RequestMessage();
  if (ok) message = TakeMessage();
  absl::Status error;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    reading_ = false;
    if (!ok) {
      read_all_ = true;
      if (messages_ == 0) {
        error = core::FieldRequired("", "no message was sent");
      }
    } else if (!message.ok()) {
      error = kind_ == Kind::kStream ? WithIndex(message.status(), messages_)
                                     : message.status();
    } else {
      ++messages_;
      if (kind_ == Kind::kUnary) read_all_ = true;
      if (error_.ok()) received_.push_back(*std::move(message));
    }
    // The error is set under the same lock as reading_: a Step() on another
    // thread would find an idle call without error, and finish it with OK.
    if (error_.ok()) error_ = error;
  }
  if (!error.ok()) return Fail(std::move(error), false);
  Step();
}

// The message may be gone when the step begins: an error drops those that wait.
void Call::StartStep() {
  std::size_t bytes = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!handler_busy_ && !received_.empty()) bytes = received_.front().bytes();
  }
  execution_.Start(bytes);
}

std::optional<RequestMessage> Call::TakeMessageOfStep() {
  std::optional<RequestMessage> message;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!handler_busy_ && !received_.empty()) {
    message = std::move(received_.front());
    received_.erase(received_.begin());
  }
  index_ = messages_ - 1 - static_cast<std::int64_t>(received_.size());
  return message;
}

void Call::OnComputed(grpc::ByteBuffer* response) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    computing_ = false;
    handler_busy_ = response != nullptr;
    if (response != nullptr && error_.ok()) {
      computed_.emplace_back();
      computed_.back().Swap(response);
    }
  }
  Step();
}

void Call::OnComputeFailed(const absl::Status& error) {
  const absl::Status named =
      kind_ == Kind::kStream ? WithIndex(error, index_) : error;
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
  // Gives the memory of the response back.
  outgoing_.Clear();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
  }
  if (!ok) return Fail(absl::CancelledError("the client is gone"), true);
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
    if (error_.ok()) error_ = std::move(error);
    execution_.Stop();
    received.swap(received_);
    if (drop_responses) computed.swap(computed_);
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

void Call::Expire() {
  bool cut = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (finished_) return;
    cut = writing_;
    if (cut) ++starting_;  // the context lives until the call finishes
  }
  // A response that its reader does not take would be under way for ever.
  if (cut) {
    context_->TryCancel();
    const std::lock_guard<std::mutex> lock(mutex_);
    --starting_;
  }
  Fail(absl::DeadlineExceededError(
           "the client set no deadline, and the server's own has passed"),
       true);
}

void Call::OnDone() {
  if (deadline_) resources_.deadlines->Remove(*deadline_);
  claim_.Release();
  resources_.calls->Add(-1);
  self_.reset();
}

}  // namespace posenc::server
