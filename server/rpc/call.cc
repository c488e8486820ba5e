#include "server/wire/call_reactor.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "server/calls/call.h"
#include "server/status.h"

namespace posenc::server {
namespace {

// The client announces the size of its (largest) message here.
constexpr char kAnnounced[] = "posenc-message-bytes";

// Of a stream that announces nothing: above the recommended chunk of 4 MiB.
constexpr std::int64_t kStreamMessageBytes = std::int64_t{5} << 20;

// Runs on gRPC's own thread: handing over costs tens of microseconds, this many
// bytes about as much.
constexpr std::size_t kInlineBytes = 128 << 10;

// A response this small is sent together with the status; a larger one may have
// to be cut off where its reader is too slow.
constexpr std::size_t kFinishWithBytes = 64 << 10;

constexpr char kPushback[] = "grpc-retry-pushback-ms";
constexpr char kPushbackMs[] = "1000";

// Nothing where nothing is announced.
absl::StatusOr<std::optional<std::int64_t>> AnnouncedBytes(
    const grpc::CallbackServerContext& context, std::int64_t limit) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kAnnounced);
  if (found == metadata.end()) return std::nullopt;
  const absl::string_view text(found->second.data(), found->second.size());
  std::uint64_t bytes = 0;
  if (!absl::SimpleAtoi(text, &bytes)) {
    return core::FieldInvalid(
        kAnnounced,
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

// Which message of a stream is meant.
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

absl::Status NoRoom(absl::string_view fact) {
  return core::MakeError(
      absl::StatusCode::kResourceExhausted, core::ErrorReason::kOverloaded, "",
      absl::StrCat(fact, "; retry later"), {{"resource", "inFlightBytes"}});
}

// An allocation that fails is an answer, not the server's end.
template <typename Compute>
auto OrOutOfMemory(const Compute& compute) -> decltype(compute()) {
  try {
    return compute();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::length_error&) {  // more than a container can hold
    return OutOfMemory();
  }
}

}  // namespace

grpc::ServerGenericBidiReactor* CallReactor::Start(
    grpc::CallbackServerContext* context, Kind kind,
    std::unique_ptr<Session> session, const CallResources& resources) {
  const auto call = std::make_shared<CallReactor>(
      context, kind, std::move(session), resources);
  call->self_ = call;
  resources.calls->Add(1);
  call->Enter();
  return call.get();
}

CallReactor::CallReactor(grpc::CallbackServerContext* context, Kind kind,
                         std::unique_ptr<Session> session,
                         const CallResources& resources)
    : context_(context),
      kind_(kind),
      session_(std::move(session)),
      resources_(resources),
      in_process_(absl::StartsWith(context->peer(), "inproc")) {}

void CallReactor::Enter() {
  if (context_->deadline() == std::chrono::system_clock::time_point::max()) {
    deadline_ = resources_.deadlines->Add(weak_from_this());
  }
  const absl::StatusOr<std::optional<std::int64_t>> announced =
      AnnouncedBytes(*context_, resources_.max_request_bytes);
  if (!announced.ok()) return Fail(announced.status(), false);
  announced_ = *announced;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::int64_t bytes =
        kind_ == Kind::kStream
            ? announced_.value_or(kStreamMessageBytes) * (kAhead + 1)
            : announced_.value_or(resources_.max_request_bytes);
    claimed_ = resources_.admission->Bounded(bytes);
    room_ = Room::kWaiting;
    switch (resources_.admission->Enter(claimed_, this)) {
      case Admission::Entry::kAdmitted:
        room_ = Room::kHeld;
        break;
      case Admission::Entry::kWaiting:
        break;
      case Admission::Entry::kFull:
        room_ = Room::kNone;
        claimed_ = 0;
        error_ = NoRoom("the server is full, and so is the queue before it");
    }
  }
  Step();
}

void CallReactor::Admitted() {
  const std::shared_ptr<CallReactor> self = shared_from_this();
  bool compute = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    compute = std::exchange(waiting_for_room_, false);
    room_ = Room::kHeld;
  }
  if (!compute) return Step();
  resources_.pool->Submit([self] { self->RunPlaced(); });
}

void CallReactor::Refused() {
  const std::shared_ptr<CallReactor> self = shared_from_this();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_for_room_ = false;
  }
  const std::int64_t bytes = planned_->room();
  planned_.reset();
  FailComputing(NoRoom(absl::StrCat("no room for a response of ", bytes,
                                    " bytes beside the calls in progress")));
}

CallReactor::Action CallReactor::Decide() {
  if (finished_) return Action::kNone;
  const bool failed = !error_.ok();
  if (!failed && room_ == Room::kHeld && !reading_ && !read_all_ &&
      received_.size() < kAhead) {
    reading_ = true;
    ++starting_;
    return Action::kRead;
  }
  if (!failed && !computing_ && computed_.size() < kAhead &&
      (session_busy_ || !received_.empty())) {
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
      failed || (read_all_ && received_.empty() && !session_busy_);
  if (complete && starting_ == 0 && !computing_ && !writing_ &&
      computed_.empty() && room_ != Room::kWaiting) {
    finished_ = true;
    return Action::kFinish;
  }
  return Action::kNone;
}

// gRPC may react within the calls made here, on this thread: no lock is held.
void CallReactor::Step() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    const Action action = Decide();
    switch (action) {
      case Action::kNone:
        return;
      case Action::kCompute:
        lock.unlock();
        StartCompute();
        return;  // it steps on when it is done
      case Action::kRead:
        lock.unlock();
        StartRead(&incoming_);
        lock.lock();
        --starting_;
        break;
      case Action::kWrite: {
        const bool last = error_.ok() && kind_ == Kind::kUnary && read_all_ &&
                          !reading_ && starting_ == 1 && !session_busy_ &&
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

absl::StatusOr<RequestMessage> CallReactor::TakeMessage() {
  RequestMessage message;
  message.bytes = incoming_.Length();
  message.exclusive = !in_process_;
  const auto bytes = static_cast<std::int64_t>(message.bytes);
  const absl::Status size =
      CheckRequest(message.bytes, resources_.max_request_bytes);
  if (!size.ok()) return size;
  if (announced_ && bytes > *announced_) {
    return core::FieldInvalid(
        kAnnounced,
        absl::StrCat("a message of ", bytes, " bytes, but ", *announced_,
                     " were announced; announce the largest, or nothing"));
  }
  if (kind_ == Kind::kStream && !announced_ && bytes > kStreamMessageBytes) {
    // As often as it comes: messages before it may still be held.
    const std::int64_t more = bytes - kStreamMessageBytes;
    if (!resources_.admission->TryClaim(more)) return OutOfMemory();
    const std::lock_guard<std::mutex> lock(mutex_);
    claimed_ += more;
  }
  if (kind_ == Kind::kUnary) {
    std::int64_t unused = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      unused = std::max<std::int64_t>(claimed_ - bytes, 0);
      claimed_ -= unused;
    }
    if (unused > 0) resources_.admission->Release(unused);
  }
  if (!incoming_.Dump(&message.slices).ok()) {
    return absl::InternalError("gRPC gave a message that cannot be read");
  }
  incoming_.Clear();
  return message;
}

void CallReactor::OnReadDone(bool ok) {
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
    if (error_.ok()) error_ = error;  // before another thread steps on
  }
  if (!error.ok()) return Fail(std::move(error), false);
  Step();
}

void CallReactor::StartCompute() {
  std::size_t bytes = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!session_busy_) bytes = received_.front().bytes;
  }
  if (bytes <= kInlineBytes) return Plan(false);
  resources_.pool->Submit([self = shared_from_this()] { self->Plan(true); });
}

void CallReactor::Plan(bool here) {
  std::optional<RequestMessage> message;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!session_busy_ && !received_.empty()) {
      message = std::move(received_.front());
      received_.erase(received_.begin());
    }
    index_ = messages_ - 1 - static_cast<std::int64_t>(received_.size());
  }
  absl::StatusOr<std::unique_ptr<PlannedResponse>> planned =
      OrOutOfMemory([&]() -> absl::StatusOr<std::unique_ptr<PlannedResponse>> {
        absl::Status taken;
        if (message) taken = session_->Receive(*std::move(message));
        if (!taken.ok()) return taken;
        return session_->Next();
      });
  if (!planned.ok()) return FailComputing(planned.status());
  planned_ = *std::move(planned);
  const std::int64_t room = planned_ == nullptr ? 0 : planned_->room();
  if (room > 0) {
    std::int64_t held = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      held = claimed_;
      waiting_for_room_ = true;
    }
    // Another thread may go on already where it waits.
    const std::shared_ptr<CallReactor> self = shared_from_this();
    const Admission::Entry entry =
        resources_.admission->EnterMore(room, held, this);
    if (entry == Admission::Entry::kWaiting) {
      std::unique_lock<std::mutex> lock(mutex_);
      if (error_.ok()) return;
      lock.unlock();
      return Fail(absl::CancelledError("the call has ended"), false);
    }
    if (entry == Admission::Entry::kFull) return Refused();
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_for_room_ = false;
  }
  if (!here && planned_ != nullptr && planned_->work_bytes() > kInlineBytes) {
    resources_.pool->Submit([self = shared_from_this()] { self->RunPlaced(); });
    return;
  }
  RunPlaced();
}

void CallReactor::RunPlaced() {
  if (planned_ != nullptr) {
    const absl::Status placed =
        OrOutOfMemory([&] { return planned_->Place(resources_.memory); });
    if (!placed.ok()) {
      const std::int64_t unused = planned_->room();
      planned_.reset();
      resources_.admission->Release(unused);
      return FailComputing(placed);
    }
  }
  Run();
}

void CallReactor::Run() {
  const std::shared_ptr<CallReactor> self = shared_from_this();
  const bool has_response = planned_ != nullptr;
  grpc::ByteBuffer response;
  if (has_response) {
    std::mutex mutex;
    absl::Status first;
    const auto stop = [this]() -> absl::Status {
      if (!stop_.load(std::memory_order_relaxed)) return absl::OkStatus();
      return absl::CancelledError("the call has ended");
    };
    std::atomic<bool> failed{false};
    resources_.pool->ForEach(planned_->tiles(), [&](std::int64_t tile) {
      if (failed.load(std::memory_order_relaxed)) return;
      absl::Status status = stop();
      if (status.ok()) {
        status = OrOutOfMemory([&] { return planned_->Run(tile, stop); });
      }
      if (status.ok()) return;
      failed.store(true);
      const std::lock_guard<std::mutex> lock(mutex);
      if (first.ok()) first = std::move(status);
    });
    if (first.ok()) {
      first = OrOutOfMemory([&] {
        planned_->Finish(&response);
        return absl::OkStatus();
      });
    }
    // Before another thread computes, and before memory is needed to send.
    planned_.reset();
    if (!first.ok()) return FailComputing(first);
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    computing_ = false;
    session_busy_ = has_response;
    if (has_response && error_.ok()) {
      computed_.emplace_back();
      computed_.back().Swap(&response);
    }
  }
  Step();
}

// At once: a step between the two would take the call for a good one that is
// done.
void CallReactor::FailComputing(const absl::Status& error) {
  const absl::Status named =
      kind_ == Kind::kStream ? WithIndex(error, index_) : error;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    computing_ = false;
    if (error_.ok()) error_ = named;
  }
  Fail(named, false);
}

void CallReactor::OnWriteDone(bool ok) {
  // Gives the memory of the response back.
  outgoing_.Clear();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
  }
  if (!ok) return Fail(absl::CancelledError("the client is gone"), true);
  Step();
}

void CallReactor::Fail(absl::Status error, bool drop_responses) {
  const std::shared_ptr<CallReactor> self = shared_from_this();
  stop_.store(true);
  // Destroyed without lock: their memory goes back to others who wait for it.
  decltype(received_) received;
  decltype(computed_) computed;
  std::unique_ptr<PlannedResponse> planned;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_.ok()) error_ = std::move(error);
    received.swap(received_);
    if (drop_responses) computed.swap(computed_);
    if (room_ == Room::kWaiting && resources_.admission->Leave(this)) {
      room_ = Room::kNone;
      claimed_ = 0;
    }
    if (waiting_for_room_ && resources_.admission->Leave(this)) {
      waiting_for_room_ = false;
      computing_ = false;
      planned = std::move(planned_);
    }
  }
  Step();
}

void CallReactor::OnCancel() { Fail(absl::CancelledError("cancelled"), true); }

void CallReactor::Expire() {
  bool cut = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (finished_) return;
    cut = writing_;
    if (cut) ++starting_;  // the context lives until it finishes
  }
  if (cut) {
    context_->TryCancel();
    const std::lock_guard<std::mutex> lock(mutex_);
    --starting_;
  }
  Fail(absl::DeadlineExceededError(
           "the client set no deadline, and the server's own has passed"),
       true);
}

void CallReactor::OnDone() {
  std::int64_t claimed = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    claimed = std::exchange(claimed_, 0);
  }
  if (deadline_) resources_.deadlines->Remove(*deadline_);
  if (claimed > 0) resources_.admission->Release(claimed);
  resources_.calls->Add(-1);
  self_.reset();
}

}  // namespace posenc::server
