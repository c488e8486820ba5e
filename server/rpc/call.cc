#include "server/rpc/call.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/error.h"
#include "server/budget/errors.h"
#include "server/convert/status.h"
#include "server/rpc/wait.h"

namespace posenc::server {
namespace {

// A response up to this size is sent together with the status, in one write. A
// larger one is written alone, because it must be possible to end it if its
// reader is too slow.
constexpr std::size_t kFinishWithBytes = 64 << 10;

// Largest message of a small method: it has a name, and a host that reflection
// repeats.
constexpr std::int64_t kSmallBytes = 4 << 10;

// In the order of waiting calls, a call without a deadline has the server's
// default, but at most this one.
constexpr absl::Duration kNoDeadline = absl::Minutes(5);

// While others wait for memory, sending or reading a message may take this
// long, plus the time for its bytes at the given rate, which a link of 100
// Mbit/s reaches. Clients of streams may compute between messages.
constexpr absl::Duration kSlowAfter = absl::Seconds(1);
constexpr absl::Duration kStreamSlowAfter = absl::Seconds(10);
constexpr double kLeastBytesPerSecond = 8 << 20;

// Heap bytes that connections and cached encodings take beside messages.
constexpr std::int64_t kHeldBeside = std::int64_t{32} << 20;

// A call loses its place if it waits for its peer for this long, and for this
// many times as long as calls of its method take.
constexpr absl::Duration kPlaceLease = absl::Milliseconds(40);
constexpr double kPlaceLeaseTimes = 4;

// Makes clients' retries wait (gRFC A6) about as long as the largest request
// takes.
constexpr char kPushback[] = "grpc-retry-pushback-ms";
constexpr char kPushbackMs[] = "1000";

// Returns whether messages of this peer came over a socket, so that the server
// alone owns their memory. A client in the same process owns the memory of its
// messages; gRPC calls such a peer "inproc" or "unknown".
bool IsSocket(const std::string& peer) {
  return absl::StartsWith(peer, "unix") || absl::StartsWith(peer, "ipv4:") ||
         absl::StartsWith(peer, "ipv6:");
}

}  // namespace

Detached Serve(CallService* service, Loop* loop) {
  loop->Begin();
  {
    Stop stop;
    CallStream stream(loop, &stop);
    auto arrives = stream.Arrives(service->generic());
    const bool came = co_await arrives;
    if (came) {
      Serve(service, loop);  // waits for the next call
      Call call(service, loop, &stream, &stop);
      Task<absl::Status> answered = call.Answer();
      (co_await answered).IgnoreError();
    }
  }
  loop->End();
}

Task<absl::Status> Call::Answer() {
  // Counts the call before Accept() checks for a drain, so that a drain that
  // begins after the check waits for it.
  resources_.calls->Add(1);
  absl::Status status = OrOutOfMemory(
      [this] { return service_->Accept(headers_, &spec_, &open_, &handler_); });
  if (resources_.observer != nullptr && spec_.observed) {
    resources_.observer->Started(spec_.name, spec_.stream);
  }
  if (spec_.small) resources_.calls->Add(-1);
  if (status.ok()) {
    const absl::StatusOr<std::optional<std::int64_t>> announced =
        AnnouncedBytes(headers_, resources_.limits->max_request_bytes);
    status = announced.status();
    if (status.ok()) announced_ = *announced;
  }
  if (status.ok()) {
    caller_.emplace(resources_.callers, spec_.caller, spec_.caller_bytes);
    memory_.emplace(resources_.admission, &*caller_,
                    resources_.limits->max_request_bytes, spec_.stream);
    Task<absl::Status> answered = spec_.stream ? AnswerStream() : AnswerUnary();
    status = co_await answered;
  }
  if (!finished_) {
    Task<absl::Status> finished = Finish(status);
    (co_await finished).IgnoreError();
  }
  auto& closes = stream_->Closes();
  const bool cancelled = co_await closes;
  if (cancelled && status.ok()) status = absl::CancelledError("cancelled");
  memory_.reset();
  resources_.places->Leave(&place_, status.ok());
  Observe(AsTold(spec_, status));
  if (!spec_.small) resources_.calls->Add(-1);
  co_return status;
}

Task<absl::Status> Call::AnswerUnary() {
  // A place at work, and memory for the message.
  Task<absl::Status> place = EnterPlace(true);
  absl::Status status = co_await place;
  if (!status.ok()) co_return status;
  Task<absl::Status> memory = EnterMemory();
  status = co_await memory;
  if (!status.ok()) co_return status;

  // The message.
  Task<absl::StatusOr<RequestMessage>> reading = Read();
  absl::StatusOr<RequestMessage> message = co_await reading;
  if (!message.ok()) co_return message.status();

  // The response.
  Step step(StepWith(), *std::move(message));
  Task<absl::Status> computed = Run(&step);
  status = co_await computed;
  if (!status.ok()) co_return status;

  // The answer.
  const bool last = step.output()->Length() <= kFinishWithBytes;
  Task<absl::Status> written = Write(step.output(), last);
  status = co_await written;
  co_return status;
}

Task<absl::Status> Call::AnswerStream() {
  Task<absl::Status> memory = EnterMemory();
  absl::Status status = co_await memory;
  if (!status.ok()) co_return status;
  Task<absl::Status> reading = ReadAll();
  Task<absl::Status> writing = WriteAll();
  Task<absl::Status> computing = ComputeAll();
  status = co_await computing;
  received_.Close();
  computed_.Close();
  (co_await writing).IgnoreError();
  if (stop_->requested()) status = stop_->why();
  // A pending read ends with the call.
  Task<absl::Status> finished = Finish(status);
  (co_await finished).IgnoreError();
  (co_await reading).IgnoreError();
  co_return status;
}

Task<absl::Status> Call::ReadAll() {
  while (true) {
    auto room = received_.Room();
    const bool wanted = co_await room;
    if (!wanted || handler_->WaitsForNews()) break;
    Task<absl::StatusOr<RequestMessage>> reading = Read();
    absl::StatusOr<RequestMessage> message = co_await reading;
    if (!message.ok()) {
      // The end of the messages is an error only if none has come.
      if (!absl::IsOutOfRange(message.status())) read_ = message.status();
      break;
    }
    received_.Put(*std::move(message));
  }
  received_.Close();
  co_return absl::OkStatus();
}

Task<absl::Status> Call::ComputeAll() {
  bool more = false;  // the handler has another response without a message
  std::int64_t index = -1;
  while (true) {
    std::optional<RequestMessage> message;
    if (!more && handler_->WaitsForNews()) {
      Wait news(loop_, stop_, [this] { return handler_->StopWaiting(); });
      news.For(handler_->AwaitNews(&news));
      const absl::Status status = co_await news;
      if (!status.ok()) co_return status;
    } else if (!more) {
      auto value = received_.Value();
      const bool came = co_await value;
      if (!came) co_return read_;
      message = received_.Take();
      ++index;
    }
    Task<absl::Status> place = EnterPlace(false);
    absl::Status status = co_await place;
    if (!status.ok()) co_return status;
    Step step(StepWith(), std::move(message));
    Task<absl::Status> computed = Run(&step);
    status = co_await computed;
    resources_.places->Leave(&place_, status.ok());
    if (!status.ok()) {
      co_return core::WithMetadata(status, "messageIndex", absl::StrCat(index));
    }
    more = handler_->HasNext();
    if (!more) answered_ = index + 1;
    if (!step.has_response()) continue;
    auto room = computed_.Room();
    const bool wanted = co_await room;
    if (!wanted) co_return stop_->why();
    computed_.Put(*step.output());
  }
}

Task<absl::Status> Call::WriteAll() {
  while (true) {
    auto value = computed_.Value();
    const bool came = co_await value;
    if (!came) co_return absl::OkStatus();
    grpc::ByteBuffer message = computed_.Take();
    Task<absl::Status> written = Write(&message, false);
    const absl::Status status = co_await written;
    if (!status.ok()) stop_->Request(status);
  }
}

Task<absl::Status> Call::EnterPlace(bool refusable) {
  Places* const places = resources_.places;
  const bool large = announced_.value_or(0) > CallMemory::kUncountedBytes;
  if (spec_.small || (!large && places->IsCheap(spec_.method))) {
    co_return absl::OkStatus();
  }
  const absl::Time start = SteadyNow();
  // gRPC counts deadlines from reading the headers, after their wait (Lag).
  const absl::Duration own = headers_.has_deadline()
                                 ? headers_.TimeLeft() - loop_->Lag()
                                 : std::min(DefaultDeadline(), kNoDeadline);
  Wait turn(loop_, stop_,
            [this, places] { return places->StopWaiting(&place_); });
  turn.For(
      places->Enter({spec_.method, spec_.peer,
                     places->Now() + absl::ToDoubleSeconds(own), refusable},
                    &place_, &turn));
  absl::Status status = co_await turn;
  waited_ += SteadyNow() - start;
  co_return status;
}

Task<absl::Status> Call::EnterMemory() {
  if (spec_.small) co_return absl::OkStatus();
  const absl::Time start = SteadyNow();
  Wait room(loop_, stop_, [this] { return memory_->StopWaiting(); });
  sized_ = announced_ || spec_.stream || HoldsTooMuch(start);
  room.For(memory_->Enter(announced_, sized_, &room));
  if (!room.await_ready()) LeavePlace();
  absl::Status status = co_await room;
  const absl::Duration waited = SteadyNow() - start;
  waited_ += waited;
  // If less time is left than the call has waited, it will hardly be answered
  // in time.
  if (status.ok() && headers_.TimeLeft() < waited) {
    status = OverBudget("the server could not answer before the deadline");
  }
  co_return status;
}

Task<absl::StatusOr<RequestMessage>> Call::Read() {
  reading_ = {SteadyNow(), memory_->expected()};
  auto read = stream_->Read();
  const bool came = co_await read;
  reading_ = {};
  if (stop_->requested()) co_return stop_->why();
  if (came) co_return TakeMessage();
  if (messages_in_ > 0) co_return absl::OutOfRangeError("no more");
  co_return core::FieldRequired("", "no message was sent");
}

absl::StatusOr<RequestMessage> Call::TakeMessage() {
  std::vector<grpc::Slice> slices = stream_->TakeMessage();
  std::int64_t bytes = 0;
  for (const grpc::Slice& slice : slices) {
    bytes += static_cast<std::int64_t>(slice.size());
  }
  bytes_in_ += bytes;
  ++messages_in_;
  absl::Status status;
  if (!spec_.small) {
    status = memory_->Received(bytes);
  } else if (bytes > kSmallBytes) {
    status = absl::ResourceExhaustedError("a message over 4 KiB");
  }
  if (status.ok()) {
    return RequestMessage(std::move(slices), IsSocket(headers_.peer()),
                          &*memory_);
  }
  if (!spec_.stream) return status;
  return core::WithMetadata(status, "messageIndex",
                            absl::StrCat(messages_in_ - 1));
}

Step::With Call::StepWith() {
  return {handler_.get(),     &*memory_, resources_.pool,
          resources_.buffers, stop_,     waited_};
}

void Call::LeavePlace() { resources_.places->Leave(&place_, false); }

absl::Duration Call::DefaultDeadline() const {
  return absl::Nanoseconds(resources_.default_deadline_ns->load());
}

Task<absl::Status> Call::Run(Step* step) {
  Step::Need need = step->Advance(false);
  while (need != Step::Need::kNothing) {
    if (need == Step::Need::kMemory) {
      const absl::Time start = SteadyNow();
      Wait room(loop_, stop_, [this] { return memory_->StopWaiting(); });
      room.For(memory_->ClaimResponse(step->bytes_to_claim(), &room));
      if (!room.await_ready()) LeavePlace();
      const absl::Status status = co_await room;
      waited_ += SteadyNow() - start;
      step->Claimed(status);
      need = step->Advance(false);
    } else {
      const auto advance = [step, &need] { need = step->Advance(true); };
      OnPool work(resources_.pool, loop_, advance);
      co_await work;
    }
  }
  computing_ += step->computing();
  if (step->status().ok() && !spec_.small) {
    resources_.places->Learn(spec_.method,
                             absl::ToDoubleSeconds(step->computing()));
  }
  co_return stop_->requested() ? stop_->why() : step->status();
}

Task<absl::Status> Call::Write(grpc::ByteBuffer* message, bool last) {
  const auto bytes = static_cast<std::int64_t>(message->Length());
  ++messages_out_;
  bytes_out_ += bytes;
  writing_ = {SteadyNow(), bytes};
  bool taken = false;
  if (last) {
    finished_ = true;
    auto write = stream_->WriteAndFinish(message);
    taken = co_await write;
  } else {
    auto write = stream_->Write(message);
    taken = co_await write;
  }
  writing_ = {};
  if (stop_->requested()) co_return stop_->why();
  if (!taken) co_return absl::CancelledError("the client is gone");
  co_return absl::OkStatus();
}

Task<absl::Status> Call::Finish(const absl::Status& status) {
  finished_ = true;
  // The call holds no messages any more, and the peer may not read the status.
  if (memory_) memory_->Release();
  const absl::Status told = AsTold(spec_, status);
  if (IsOverload(told)) stream_->AddTrailer(kPushback, kPushbackMs);
  const grpc::Status sent = ToGrpcStatus(told);
  writing_ = {SteadyNow(), 0};
  auto finish = stream_->Finish(sent);
  co_await finish;
  writing_ = {};
  co_return absl::OkStatus();
}

Call::Call(CallService* service, Loop* loop, CallStream* stream, Stop* stop)
    : service_(service),
      resources_(service->resources()),
      loop_(loop),
      stream_(stream),
      stop_(stop),
      loop_place_(loop->Add(this)),
      headers_(&stream->context()),
      received_(loop, stop),
      computed_(loop, stop) {
  spec_.peer = headers_.peer_id();
}

Call::~Call() { loop_->Remove(loop_place_); }

// Messages that announced nothing, or too little, may hold more than was
// claimed.
bool Call::HoldsTooMuch(absl::Time now) const {
  return resources_.held->Bytes(now) - kHeldBeside >
         resources_.admission->budget();
}

// Checks the message that the coroutine is reading or writing.
void Call::Tick(absl::Time now) {
  const bool writes = writing_.since != absl::InfiniteFuture();
  const auto& [since, bytes] = writes ? writing_ : reading_;
  const absl::Duration deadline = DefaultDeadline();
  // A small method's call has no deadline; each message has the server's.
  if (spec_.small && now - since > deadline) {
    return CutOff(absl::DeadlineExceededError(
        "a message took longer than the server's own deadline"));
  }
  if (!spec_.small && !headers_.has_deadline() && now - started_ > deadline) {
    return CutOff(absl::DeadlineExceededError(
        "the client set no deadline, and the server's own has passed"));
  }
  if (spec_.small || since > now) return;
  // Only unary calls: a stream has a place only while it computes.
  if (!spec_.stream && now - since > kPlaceLease &&
      absl::ToDoubleSeconds(now - since) >
          kPlaceLeaseTimes * resources_.places->SecondsOf(spec_.method)) {
    LeavePlace();
  }
  // If too much is held, messages count as slow after a tick, and end first.
  const bool over = now - since > Loop::kTick / 2 && HoldsTooMuch(now);
  if (!over && resources_.admission->waiting() == 0) return;
  const bool begun = spec_.stream && messages_in_ > 0;
  absl::Duration allowed = over    ? Loop::kTick
                           : begun ? kStreamSlowAfter
                                   : kSlowAfter;
  if (!over || writes || sized_) {
    allowed += absl::Seconds(static_cast<double>(bytes) / kLeastBytesPerSecond);
  }
  if (begun && !writes) {
    // The stream waits for its client's next message, of which gRPC may hold a
    // part.
    if (messages_in_ != answered_ || now - since <= kSlowAfter) return;
    if (over) return CutOff(OverBudget("no memory for a waiting stream"));
    memory_->Lend();
  } else if (now - since > allowed) {
    CutOff(OverBudget(
        over && !announced_
            ? "no room for the message; announce its size to wait for room"
            : "a message was too slow while others wait for memory"));
  }
}

// A message that is being written can only be ended by cancelling its call. The
// client then gets no error details.
void Call::CutOff(const absl::Status& why) {
  stop_->Request(why);
  if (writing_.since != absl::InfiniteFuture()) stream_->Cancel();
}

void Call::Observe(const absl::Status& told) const {
  if (resources_.observer == nullptr || !spec_.observed) return;
  const std::string reason = ReasonName(told);
  CallRecord record = RecordOf(headers_, spec_, told, reason);
  record.handling = SteadyNow() - started_;
  record.started = absl::Now() - record.handling;
  record.waited = waited_;
  record.computing = computing_;
  record.messages_received = messages_in_;
  record.messages_sent = messages_out_;
  record.bytes_received = bytes_in_;
  record.bytes_sent = bytes_out_;
  resources_.observer->Finished(record);
}

}  // namespace posenc::server
