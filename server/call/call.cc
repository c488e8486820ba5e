#include "server/call/call.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "server/base/errors.h"
#include "server/convert/status.h"

namespace posenc::server {
namespace {

// Largest response of a unary call that is sent together with the status, in
// one write. One write saves an event of the loop, which matters only for small
// calls. A larger response is written alone, so that the call's claim is
// released while the status waits for the peer. Tick() ends slow writes.
constexpr std::size_t kWithStatusBytes = 64 << 10;

// Largest message of an exempt method. The message contains a name, and for
// reflection also a host. The response to reflection repeats the message.
constexpr std::int64_t kExemptBytes = 4 << 10;

// In the queue for places, a call without a deadline gets the earlier of two
// deadlines: the server's default deadline, or this time after its arrival.
constexpr absl::Duration kNoDeadline = absl::Minutes(5);

// While other calls wait for memory, a message may take kSlowAfter plus the
// time that its bytes need at kLeastBytesPerSecond (two thirds of a 100 Mbit/s
// link). If a message takes longer, its call is ended. The responses of a
// stream have more time (kStreamSlowAfter), because its client may compute
// between messages. While a stream waits for its next message, it is not ended,
// but its claim is lent to other calls.
constexpr absl::Duration kSlowAfter = absl::Seconds(1);
constexpr absl::Duration kStreamSlowAfter = absl::Seconds(10);
constexpr double kLeastBytesPerSecond = 8 << 20;

// Part of HeldMemory that is assumed to belong to connections and cached
// encodings, not to messages.
constexpr std::int64_t kHeldBeside = std::int64_t{32} << 20;

// A unary call loses its place if it waits for its peer for more than
// kPlaceLease and for more than kPlaceLeaseTimes x the mean time of its
// method's calls.
constexpr absl::Duration kPlaceLease = absl::Milliseconds(40);
constexpr double kPlaceLeaseTimes = 4;

// Compute threads have a lower priority than the threads that accept and refuse
// calls. Otherwise calls that must be refused would wait in the sockets, in
// front of calls that could be answered. With a niceness of 10, more calls were
// answered in time than with 3 (docs/adr/0007) or 19.
constexpr int kComputeNiceness = 10;

// This trailer makes clients wait before a retry (gRFC A6), about as long as
// the largest request takes.
constexpr char kPushback[] = "grpc-retry-pushback-ms";
constexpr char kPushbackMs[] = "1000";

// A CallRecord contains at most this many bytes of each metadata text.
constexpr std::size_t kMostObserved = 128;

absl::Status NoMessage() {
  return core::FieldRequired("", "no message was sent");
}

// Returns whether the status says that the server is full.
bool IsOverload(const absl::Status& status) {
  const auto details = core::GetErrorDetails(status);
  return details && details->reason == core::ErrorReason::kOverloaded;
}

// Returns the status for the client. If the method has full_is_unavailable, an
// overload becomes UNAVAILABLE.
absl::Status AsTold(const CallSpec& spec, const absl::Status& status) {
  if (!spec.full_is_unavailable || !IsOverload(status)) return status;
  absl::Status told(absl::StatusCode::kUnavailable, status.message());
  status.ForEachPayload(
      [&told](absl::string_view type, const absl::Cord& payload) {
        told.SetPayload(type, payload);
      });
  return told;
}

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

CallResources::CallResources(const Limits& all_limits, int methods,
                             std::vector<CallObserver*> all_observers)
    : limits(all_limits),
      observers(std::move(all_observers)),
      admission(std::make_shared<Admission>(
          limits.in_flight_bytes,
          static_cast<std::size_t>(limits.max_waiting))),
      buffers(admission),
      held(&buffers),
      default_deadline_ns(absl::ToInt64Nanoseconds(limits.default_deadline)),
      places(limits.threads, static_cast<std::size_t>(limits.max_waiting),
             methods, Seconds),
      pool(limits.threads, kComputeNiceness) {}

Detached ServeCalls(CallService* service, Loop* loop) {
  loop->Begin();
  {
    Stop stop;
    CallStream stream(loop, &stop);
    auto arrives = stream.Arrives(&service->resources()->generic);
    const bool came = co_await arrives;
    if (came) {
      ServeCalls(service, loop);  // waits for the next call
      Call call(service, loop, &stream, &stop);
      absl::Status status = call.CheckHeaders();
      if (status.ok()) {
        Task answered = call.Answer();
        status = co_await answered;
      }
      if (!call.status_written()) {
        auto writing = stream.WriteStatus(call.Conclude(status));
        co_await writing;
      }
      auto& closes = stream.Closes();
      const absl::Status gone = co_await closes;
      call.Report(std::move(status), gone);
    }
  }
  loop->End();
}

Call::Call(CallService* service, Loop* loop, CallStream* stream, Stop* stop)
    : service_(service),
      resources_(*service->resources()),
      loop_(loop),
      stream_(stream),
      stop_(stop),
      headers_(&stream->context()),
      wait_(loop, stop) {
  spec_.party = headers_.peer_id();
  loop_->Add(this);
}

Call::~Call() { loop_->Remove(this); }

absl::Status Call::CheckHeaders() {
  // Counts the call before Route() checks for a drain. So a drain that begins
  // after the check waits for this call.
  ++resources_.calls;
  absl::Status status = OrOutOfMemory([this] { return Route(); });
  counted_ = status.ok() && !spec_.exempt;
  if (!counted_) --resources_.calls;
  return status;
}

absl::Status Call::Route() {
  // Converts a failed allocation to an error here, so that the observers are
  // notified of this call, too.
  const absl::Status status = OrOutOfMemory(
      [this] { return service_->Route(headers_, &spec_, &slot_, &handler_); });
  for (CallObserver* const observer : resources_.observers) {
    if (spec_.observed) observer->Started(spec_.name);
  }
  if (!status.ok()) return status;
  ASSIGN_OR_RETURN(
      announced_,
      AnnouncedBytes(headers_, resources_.limits.max_request_bytes));
  memory_.emplace(resources_.admission.get(), &resources_.callers,
                  resources_.limits.max_request_bytes, spec_);
  // gRPC counts a deadline from the time at which it reads the headers. The
  // headers may have waited in the socket before that time (Loop::Lag()).
  const absl::Duration own = headers_.has_deadline()
                                 ? headers_.TimeLeft() - loop_->Lag()
                                 : std::min(DefaultDeadline(), kNoDeadline);
  deadline_ = resources_.places.Now() + absl::ToDoubleSeconds(own);
  return absl::OkStatus();
}

// The four operations on messages. They are defined before the coroutines,
// because the coroutines need their deduced return types.

auto Call::Read() {
  reading_ = {SteadyNow(), memory_->expected()};
  return stream_->Read();
}

absl::StatusOr<RequestMessage> Call::TakeMessage(bool came) {
  reading_ = {};
  if (stop_->requested()) return stop_->why();
  if (!came && record_.messages_received > 0)
    return absl::OutOfRangeError("no more");
  if (!came) return NoMessage();
  // A client in the same process owns the memory of its messages.
  const bool exclusive = headers_.peer_kind() != PeerKind::kInProcess;
  RequestMessage message(stream_->TakeMessage(), exclusive, &*memory_);
  const auto bytes = static_cast<std::int64_t>(message.bytes());
  record_.bytes_received += bytes;
  ++record_.messages_received;
  absl::Status status;
  if (!spec_.exempt) {
    status = memory_->Received(bytes);
  } else if (bytes > kExemptBytes) {
    status = absl::ResourceExhaustedError("a message over 4 KiB");
  }
  if (status.ok()) return message;
  if (!spec_.stream) return status;
  return core::WithMetadata(status, "messageIndex",
                            absl::StrCat(record_.messages_received - 1));
}

auto Call::Write(grpc::ByteBuffer* message, bool with_status) {
  const auto bytes = static_cast<std::int64_t>(message->Length());
  ++record_.messages_sent;
  record_.bytes_sent += bytes;
  writing_ = {SteadyNow(), bytes};
  status_written_ = with_status;
  return stream_->Write(message, with_status);
}

absl::Status Call::Written(bool taken) {
  writing_ = {};
  if (stop_->requested()) return stop_->why();
  if (!taken) return absl::CancelledError("the client is gone");
  return absl::OkStatus();
}

Task Call::AnswerUnary() {
  EnterPlace(true);
  absl::Status status = co_await wait_;
  if (!status.ok()) co_return status;
  ClaimMemory();
  status = co_await wait_;
  status = CheckTimeLeft(status);
  if (!status.ok()) co_return status;

  auto reading = Read();
  const bool came = co_await reading;
  absl::StatusOr<RequestMessage> message = TakeMessage(came);
  if (!message.ok()) co_return message.status();

  Step step(StepWith(), *std::move(message));
  Task computed = Run(&step);
  status = co_await computed;
  if (!status.ok()) co_return status;

  const bool with_status = step.output()->Length() <= kWithStatusBytes;
  auto writing = Write(step.output(), with_status);
  const bool taken = co_await writing;
  co_return Written(taken);
}

// If the frame of one of the three coroutines cannot be allocated, the
// coroutines that have already started cannot end, and ~Task() ends the
// process.
Task Call::AnswerStream() {
  ClaimMemory();
  absl::Status status = co_await wait_;
  status = CheckTimeLeft(status);
  if (!status.ok()) co_return status;
  Handover<RequestMessage> received(loop_, stop_);
  Handover<grpc::ByteBuffer> computed(loop_, stop_);
  Task read_all = ReadAll(&received);
  Task write_all = WriteAll(&computed);
  Task compute_all = ComputeAll(&received, &computed);
  status = co_await compute_all;
  received.Close();
  computed.Close();
  (co_await write_all).IgnoreError();
  if (stop_->requested()) status = stop_->why();
  // Ends ReadAll()'s wait for a message. gRPC's own read ends with the call.
  stop_->Request(absl::CancelledError("the call is answered"));
  const absl::Status read = co_await read_all;
  if (!status.ok()) co_return status;
  if (!read.ok()) co_return read;
  co_return core::WithMetadata(handler_->HalfClosed(), "messageIndex",
                               absl::StrCat(record_.messages_received - 1));
}

// Returns the error that ended reading, or OK.
Task Call::ReadAll(Handover<RequestMessage>* received) {
  const absl::Cleanup close = [received] { received->Close(); };
  while (true) {
    auto room = received->Room();
    const bool wanted = co_await room;
    if (!wanted || handler_->WaitsForNews()) co_return absl::OkStatus();
    auto reading = Read();
    const bool came = co_await reading;
    absl::StatusOr<RequestMessage> message = TakeMessage(came);
    // The end of the messages is an error only if no message has arrived.
    if (absl::IsOutOfRange(message.status())) co_return absl::OkStatus();
    if (!message.ok()) co_return message.status();
    received->Put(*std::move(message));
  }
}

Task Call::ComputeAll(Handover<RequestMessage>* received,
                      Handover<grpc::ByteBuffer>* computed) {
  bool more = false;  // the handler has another response to the last message
  std::int64_t index = -1;
  while (true) {
    std::optional<RequestMessage> message;
    if (!more && handler_->WaitsForNews()) {
      wait_.For(handler_->AwaitNews(&wait_),
                [this] { return handler_->StopWaiting(); });
      const absl::Status status = co_await wait_;
      if (!status.ok()) co_return status;
    } else if (!more) {
      auto value = received->Value();
      const bool came = co_await value;
      if (!came) co_return absl::OkStatus();
      message = received->Take();
      ++index;
    }
    Step step(StepWith(), std::move(message));
    Task run = Run(&step);
    const absl::Status status = co_await run;
    if (!status.ok()) {
      co_return core::WithMetadata(status, "messageIndex", absl::StrCat(index));
    }
    LeavePlace(step.computing());
    more = handler_->HasNext();
    if (!more) answered_ = index + 1;
    if (!step.has_response()) continue;
    auto room = computed->Room();
    const bool wanted = co_await room;
    if (!wanted) co_return stop_->why();
    computed->Put(*step.output());
  }
}

Task Call::WriteAll(Handover<grpc::ByteBuffer>* computed) {
  while (true) {
    auto value = computed->Value();
    const bool came = co_await value;
    if (!came) co_return absl::OkStatus();
    grpc::ByteBuffer message = computed->Take();
    auto writing = Write(&message, false);
    const bool taken = co_await writing;
    const absl::Status status = Written(taken);
    if (!status.ok()) stop_->Request(status);
  }
}

Task Call::Run(Step* step) {
  // A unary call already has its place, unless the place was released while the
  // call waited.
  if (must_enter_) {
    EnterPlace(false);
    const absl::Status status = co_await wait_;
    if (!status.ok()) co_return status;
  }
  Step::Need need = step->Advance(false);
  while (need != Step::Need::kNothing) {
    if (need == Step::Need::kMemory) {
      wait_.For(memory_->ClaimResponse(step->bytes_to_claim(), &wait_),
                [this] { return memory_->StopWaiting(); });
      if (!wait_.await_ready()) LeavePlace(std::nullopt);
      absl::Status status = co_await wait_;
      step->Claimed(status);
      if (status.ok() && must_enter_) {
        EnterPlace(false);
        status = co_await wait_;
      }
      need = status.ok() ? step->Advance(false) : Step::Need::kNothing;
    } else {
      if (need == Step::Need::kTurn && resources_.places.state().waiting > 0) {
        LeavePlace(std::nullopt);
        EnterPlace(false);
        // The error is ignored, because after a stop the step ends on the pool.
        (co_await wait_).IgnoreError();
      }
      const auto advance = [step, &need] { need = step->Advance(true); };
      OnPool work(&resources_.pool, loop_, advance);
      co_await work;
    }
  }
  record_.computing += step->computing();
  co_return stop_->requested() ? stop_->why() : step->status();
}

void Call::EnterPlace(bool refusable) {
  if (spec_.exempt) return wait_.For(absl::OkStatus());
  must_enter_ = false;
  wait_.For(resources_.places.Enter(
                {.method = spec_.method,
                 .party = spec_.party,
                 .deadline = deadline_,
                 .refusable = refusable,
                 .large = announced_.value_or(0) > CallMemory::kUncountedBytes},
                &place_, &wait_),
            [this] { return resources_.places.StopWaiting(&place_); });
}

void Call::LeavePlace(std::optional<absl::Duration> computed,
                      absl::Duration unread) {
  if (must_enter_) return;
  must_enter_ = true;
  resources_.places.Leave(&place_, computed, unread);
}

void Call::ClaimMemory() {
  if (spec_.exempt) return wait_.For(absl::OkStatus());
  sized_ = announced_ || spec_.stream || HoldsTooMuch(SteadyNow());
  wait_.For(memory_->ClaimRequest(announced_, sized_, &wait_),
            [this] { return memory_->StopWaiting(); });
  if (!wait_.await_ready()) LeavePlace(std::nullopt);
}

// Refuses a call that has less time left than it waited for memory, because the
// server probably cannot answer it in time.
absl::Status Call::CheckTimeLeft(const absl::Status& status) const {
  if (!status.ok() || wait_.last() == absl::ZeroDuration() ||
      headers_.TimeLeft() >= wait_.last()) {
    return status;
  }
  return OverBudget("the server could not answer before the deadline");
}

Step::With Call::StepWith() {
  return {handler_.get(),      &*memory_, &resources_.pool,
          &resources_.buffers, stop_,     &wait_};
}

grpc::Status Call::Conclude(const absl::Status& status) {
  handler_ = nullptr;  // it may hold a message
  if (memory_) memory_->Release();
  const absl::Status told = AsTold(spec_, status);
  if (IsOverload(told)) stream_->AddTrailer(kPushback, kPushbackMs);
  writing_ = {SteadyNow(), 0};
  return ToGrpcStatus(told);
}

void Call::Report(absl::Status status, const absl::Status& gone) {
  // If the client is gone, a missing message is not the client's mistake.
  if (!gone.ok() &&
      (status.ok() || absl::IsCancelled(status) || status == NoMessage())) {
    status = gone;
  }
  memory_.reset();
  LeavePlace(status.ok() ? std::optional(record_.computing) : std::nullopt);
  Observe(AsTold(spec_, status));
  if (counted_) --resources_.calls;
}

absl::Duration Call::DefaultDeadline() const {
  return absl::Nanoseconds(resources_.default_deadline_ns.load());
}

// Returns whether all messages together hold more memory than the budget has.
// Calls may have claimed too little, for example if clients announced no size.
bool Call::HoldsTooMuch(absl::Time now) const {
  return resources_.held.Bytes(now) - kHeldBeside >
         resources_.admission->budget();
}

// If reading or writing a message takes too long, releases the call's place,
// lends its claim, or ends the call.
void Call::Tick(absl::Time now) {
  const bool writes = writing_.since != absl::InfiniteFuture();
  const auto& [since, bytes] = writes ? writing_ : reading_;
  // If `bytes` is 0, the status is written. The status gets more time than a
  // message, because it may report that the server's deadline has passed.
  const bool is_status = writes && bytes == 0;
  absl::Time due = absl::InfiniteFuture();
  if (spec_.exempt) {
    due = since + DefaultDeadline();  // for each message
  } else if (!headers_.has_deadline()) {
    due = started_ + DefaultDeadline();
  }
  if (is_status) due = std::max(due, since + kSlowAfter);
  if (now > due) {
    return CutOff(absl::DeadlineExceededError(
        spec_.exempt
            ? "a message took longer than the server's own deadline"
            : "the client set no deadline, and the server's own has passed"));
  }
  if (spec_.exempt || since > now) return;
  // Only a unary call can lose its place here, because a stream has a place
  // only while it computes.
  if (!spec_.stream && place_.held() && now - since > kPlaceLease &&
      absl::ToDoubleSeconds(now - since) >
          kPlaceLeaseTimes * resources_.places.SecondsOf(spec_.method)) {
    const bool computed = writes && !is_status;
    LeavePlace(computed ? std::optional(record_.computing) : std::nullopt,
               now - since);
  }
  // If all messages together hold too much memory, a message counts as slow
  // after one tick. The message's call is then ended, to release memory.
  const bool over =
      !is_status && now - since > Loop::kTick / 2 && HoldsTooMuch(now);
  if (!over && resources_.admission->waiting() == 0) return;
  const bool begun = spec_.stream && record_.messages_received > 0;
  absl::Duration allowed = over    ? Loop::kTick
                           : begun ? kStreamSlowAfter
                                   : kSlowAfter;
  if (!over || writes || sized_) {
    allowed += absl::Seconds(static_cast<double>(bytes) / kLeastBytesPerSecond);
  }
  if (begun && !writes) {
    // The stream waits for its client's next message. gRPC may already hold a
    // part of this message.
    if (record_.messages_received != answered_ || now - since <= kSlowAfter)
      return;
    if (over) return CutOff(OverBudget("no memory for a waiting stream"));
    memory_->Lend();
  } else if (now - since > allowed) {
    CutOff(OverBudget(
        over && !announced_
            ? "no room for the message; announce its size to wait for room"
            : "a message was too slow while others wait for memory"));
  }
}

// A write can only be ended by cancelling the call in gRPC. The client then
// gets no error details.
void Call::CutOff(const absl::Status& why) {
  stop_->Request(why);
  if (writing_.since != absl::InfiniteFuture()) stream_->Cancel();
}

void Call::Observe(const absl::Status& told) {
  if (resources_.observers.empty() || !spec_.observed) return;
  const std::string reason = ReasonName(told);
  const auto metadata = [this](absl::string_view key) {
    return headers_.Find(key).value_or("").substr(0, kMostObserved);
  };
  record_.service = spec_.service;
  record_.method = spec_.name;
  record_.code = static_cast<grpc::StatusCode>(told.raw_code());
  record_.reason = reason;
  record_.message = told.message();
  record_.peer = headers_.peer();
  record_.caller = spec_.caller;
  record_.request_id = metadata("x-request-id");
  record_.traceparent = metadata("traceparent");
  record_.handling = SteadyNow() - started_;
  record_.started = absl::Now() - record_.handling;
  record_.waited = wait_.all();
  for (CallObserver* const observer : resources_.observers) {
    observer->Finished(record_);
  }
}

}  // namespace posenc::server
