#include "client/cpp/connection/calls.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/connection/call_identity.h"
#include "client/cpp/connection/error_fields.h"
#include "client/cpp/connection/target.h"
#include "client/cpp/tensors/bulk_stream.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "posenc/v1/service.grpc.pb.h"
#include "posenc/wire/metadata.h"

namespace posenc {
namespace {

constexpr char kService[] = "/posenc.v1.PositionalEncodingService/";

// Size of the largest message that protobuf can frame: 2 GiB - 1.
constexpr std::int64_t kMaxProtoBytes = std::numeric_limits<int>::max();

// Size of the smallest message that uses a bulk connection. A bulk connection
// does not make smaller messages faster.
constexpr std::int64_t kBulkBytes = 64 << 10;

// Size of a stream's messages, as the contract recommends. In measurements,
// messages of about 4 MiB were the fastest, because requests, computation and
// responses overlap and a message stays in the cache during its computation.
constexpr std::int64_t kStreamedBytes = (4 << 20) - (64 << 10);

// Largest number of bytes that framing adds to a stream's message.
constexpr std::int64_t kFramingBytes = 6;

// Deadline of a stream whose CallOptions have no timeout. Without a deadline,
// the server would apply its default, which is too short for streams.
constexpr absl::Duration kLongestStream = absl::Hours(24);

// When a call has ended, its connection has this much time to send the call's
// remaining bytes.
constexpr absl::Duration kGrace = absl::Milliseconds(200);

// Timeout of the request that gets the server's version for an error message.
constexpr absl::Duration kVersionTimeout = absl::Seconds(2);

// Converts a status; the server's google.rpc.Status becomes a payload.
absl::Status ToAbsl(const grpc::Status& status) {
  absl::Status out(static_cast<absl::StatusCode>(status.error_code()),
                   status.error_message());
  if (!status.ok() && !status.error_details().empty()) {
    out.SetPayload(kStatusType, absl::Cord(status.error_details()));
  }
  return out;
}

// Adds the request id of a call to its error. Keeps an id that the error
// already has, because such an error belongs to another call: a callback of the
// stream returned it.
absl::Status WithRequestId(absl::Status status, const std::string& request_id) {
  if (!status.ok() && !status.GetPayload(kRequestIdType)) {
    status.SetPayload(kRequestIdType, absl::Cord(request_id));
  }
  return status;
}

// Returns DEADLINE_EXCEEDED if the timeout is not positive. An infinite timeout
// sets no deadline.
absl::Status SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  // gRPC would not refuse a timeout of 0 or less. gRPC rounds deadlines up to
  // its next millisecond, so a quick call could succeed.
  if (timeout <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "timeout: ", absl::FormatDuration(timeout), "; must be above 0"));
  }
  if (timeout != absl::InfiniteDuration()) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }
  return absl::OkStatus();
}

// Returns true if the server accepts no tensors in shared memory, because it
// shares no memory with this client or is too old to know shared memory.
bool IsNotShared(const absl::Status& status) {
  const std::string reason = ErrorReason(status);
  return (status.code() == absl::StatusCode::kUnimplemented &&
          (reason == "ERROR_REASON_SHARED_MEMORY_UNAVAILABLE" ||
           reason == "ERROR_REASON_FIELD_UNKNOWN")) ||
         (status.code() == absl::StatusCode::kPermissionDenied &&
          reason == "ERROR_REASON_SHARED_MEMORY_UNAVAILABLE");
}

// Returns true if the error needs no advice to write the tensor again. No
// advice is needed if the call wrote nothing, or if the server's message
// already has the advice (ABORTED).
bool NeedsNoAdvice(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kAborted:
      return true;
    default:
      return false;
  }
}

// Returns the advice for a call that no server answered.
absl::string_view Remedy(absl::StatusCode code, absl::string_view target) {
  if (code == absl::StatusCode::kDeadlineExceeded) {
    return "; the timeout is over: is the server there, or must the timeout be "
           "longer?";
  }
  if (code != absl::StatusCode::kUnavailable) return "";
  return HasPort(target)
             ? "; is the server there, does it speak TLS or plaintext as this "
               "client does, and do both trust the certificates?"
             : "; the target has no port, and gRPC takes 443: write HOST:PORT, "
               "such as localhost:50051";
}

absl::Status WithMessage(const absl::Status& status,
                         absl::string_view message) {
  absl::Status other(status.code(), message);
  status.ForEachPayload([&other](absl::string_view type, const absl::Cord& is) {
    other.SetPayload(type, is);
  });
  return other;
}

}  // namespace

WholeCall::WholeCall(const CallOptions& options)
    : options_(options),
      end_(absl::Now() + options.timeout.value_or(absl::InfiniteDuration())) {}

CallOptions WholeCall::Rest() const {
  CallOptions rest = options_;
  // A timeout of 0 or less stays unchanged, so that Begin() refuses it.
  if (rest.timeout > absl::ZeroDuration()) {
    rest.timeout = std::max(end_ - absl::Now(), absl::Nanoseconds(1));
  }
  return rest;
}

absl::Status CheckBytes(std::int64_t bytes) {
  if (bytes <= kMaxProtoBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("request: ", bytes, " bytes; the limit is ", kMaxProtoBytes,
                   ", split the batch"));
}

bool TooLarge(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted &&
         ErrorReason(status) != "ERROR_REASON_OVERLOADED";
}

absl::Status CheckMemory(std::int64_t bytes) {
  const std::int64_t memory =
      std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  if (bytes <= memory || memory <= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the result has ", bytes, " bytes, and this machine ",
                   memory, " of memory; ask for less, or take it in parts"));
}

Calls::Calls(const ClientOptions& options)
    : channels_(options),
      timeout_(options.timeout),
      request_id_(options.request_id),
      traceparent_(options.traceparent),
      max_message_bytes_(std::clamp<std::int64_t>(options.max_message_bytes, 0,
                                                  kMaxProtoBytes)),
      stream_above_bytes_(
          std::min(options.stream_above_bytes.value_or(max_message_bytes_),
                   max_message_bytes_)) {}

Calls::Calls(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout)
    : channels_(std::move(channel)),
      timeout_(timeout),
      max_message_bytes_(kMaxProtoBytes),
      stream_above_bytes_(kMaxProtoBytes) {}

absl::StatusOr<std::string> Calls::Begin(const CallOptions& options,
                                         grpc::ClientContext* context) const {
  if (!channels_.status().ok()) return channels_.status();
  const absl::Status status =
      SetDeadline(options.timeout.value_or(timeout_), context);
  if (!status.ok()) return status;
  return AddIdentity(
      options.request_id.empty() ? request_id_ : options.request_id,
      options.traceparent.empty() ? traceparent_ : options.traceparent,
      context);
}

absl::Status Calls::Ended(
    const absl::Status& status, const std::string& request_id,
    std::chrono::system_clock::time_point deadline) const {
  if (status.ok()) return status;
  const std::string message(status.message());
  std::string text = message;
  // UNKNOWN is gRPC's code for a target that it cannot parse.
  const bool away = status.code() == absl::StatusCode::kUnavailable ||
                    status.code() == absl::StatusCode::kDeadlineExceeded ||
                    status.code() == absl::StatusCode::kUnknown;
  // An error with a reason comes from a server that answered.
  if (away && !channels_.target().empty() && ErrorReason(status).empty()) {
    text = absl::StrCat(channels_.target(), ": ", message,
                        Remedy(status.code(), channels_.target()));
  } else if (status.code() == absl::StatusCode::kUnimplemented) {
    text = absl::StrCat(message.empty() ? "the method is not known" : message,
                        VersionsText(deadline));
  }
  return WithRequestId(WithMessage(status, text), request_id);
}

std::string Calls::VersionsText(
    std::chrono::system_clock::time_point deadline) const {
  grpc::ClientContext context;
  context.set_deadline(std::min(
      deadline,
      absl::ToChronoTime(absl::Now() + std::min(timeout_, kVersionTimeout))));
  v1::GetServerInfoResponse info;
  const grpc::Status asked =
      v1::PositionalEncodingService::NewStub(channels_.Small()->channel)
          ->GetServerInfo(&context, {}, &info);
  const bool has_version = asked.ok();
  if (has_version && info.version() == POSENC_VERSION) return "";
  if (!has_version && asked.error_code() != grpc::StatusCode::UNIMPLEMENTED) {
    return absl::StrCat("; this client is ", POSENC_VERSION);
  }
  return absl::StrCat("; the server is ",
                      has_version ? absl::StrCat("posencd ", info.version())
                                  : "no posencd of this client's version",
                      ", this client is ", POSENC_VERSION);
}

absl::StatusOr<ReceivedTensors> Calls::Bulk(
    const std::string& name, const google::protobuf::Message& request,
    absl::Span<const TensorField> sent, google::protobuf::Message* response,
    absl::Span<const WantedTensor> wanted, const CallOptions& options,
    std::int64_t expected_bytes) {
  if (!regions_.any()) {
    return SendUnary(name, request, sent, response, wanted, expected_bytes,
                     false, options);
  }
  const WholeCall call(options);
  const std::unique_ptr<google::protobuf::Message> by_place(request.New());
  by_place->CopyFrom(request);
  const SharedParts shared =
      regions_.Share(sent, wanted, *response, by_place.get());
  if (!shared.owners.empty()) {
    absl::StatusOr<ReceivedTensors> result =
        SendUnary(name, *by_place, shared.sent, response, wanted,
                  expected_bytes, shared.in_place, call.Rest());
    if (result.ok() || !IsNotShared(result.status())) {
      return shared.in_place && !NeedsNoAdvice(result.status())
                 ? WithMessage(
                       result.status(),
                       absl::StrCat(result.status().message(),
                                    "; the tensor in shared memory may be "
                                    "rotated already, write it anew"))
                 : result;
    }
    regions_.SwitchOff();
    response->Clear();
  }
  return SendUnary(name, request, sent, response, wanted, expected_bytes, false,
                   call.Rest());
}

absl::StatusOr<ReceivedTensors> Calls::SendUnary(
    const std::string& name, const google::protobuf::Message& request,
    absl::Span<const TensorField> sent, google::protobuf::Message* response,
    absl::Span<const WantedTensor> wanted, std::int64_t expected_bytes,
    bool once, const CallOptions& options) {
  const std::int64_t message_bytes = MessageBytes(request, sent);
  const absl::Status size = CheckBytes(message_bytes);
  if (!size.ok()) return size;
  // The context is destroyed before Recall(), because the context keeps the
  // call alive, and the call keeps the slices that it sends.
  auto context = std::make_unique<grpc::ClientContext>();
  const absl::StatusOr<std::string> id = Begin(options, context.get());
  if (!id.ok()) return id.status();
  context->AddMetadata(wire::kMessageBytes, absl::StrCat(message_bytes));
  const std::int64_t larger = std::max(message_bytes, expected_bytes);
  Channels::Lease lease = once                   ? channels_.Once()
                          : larger >= kBulkBytes ? channels_.Bulk()
                                                 : channels_.Small();
  Loans loans;
  absl::StatusOr<ReceivedTensors> result;
  {
    // The call has its own completion queue, which only this thread polls. So
    // this thread itself gets the response, without waiting for another thread
    // to wake up.
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(lease->channel);
    grpc::ByteBuffer outgoing = FrameMessage(request, sent, &loans);
    const auto call = stub.PrepareUnaryCall(
        context.get(), absl::StrCat(kService, name), outgoing, &queue);
    outgoing.Clear();
    grpc::ByteBuffer incoming;
    grpc::Status outcome;
    call->StartCall();
    call->Finish(&incoming, &outcome, nullptr);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) continue;
    if (!outcome.ok()) {
      result = Ended(ToAbsl(outcome), *id, context->deadline());
    } else {
      std::vector<int> numbers;
      for (const WantedTensor& tensor : wanted) numbers.push_back(tensor.field);
      const absl::StatusOr<ReceivedMessage> received =
          ReceivedMessage::Parse(incoming, std::move(numbers), response);
      const absl::Status read =
          received.ok() ? CheckPlaces(*received, wanted.size(), request)
                        : received.status();
      if (read.ok()) {
        result = TakeTensors(*received, wanted);
      } else {
        result = read;
      }
      if (!result.ok()) result = WithRequestId(result.status(), *id);
    }
    context.reset();
  }
  Recall(loans, std::move(lease));
  return result;
}

absl::Status Calls::StreamBytes(const std::string& name,
                                const google::protobuf::Message& first,
                                const NextBytes& next, bool lend,
                                const TakeBytes& take,
                                const CallOptions& options) {
  const std::int64_t first_bytes = MessageBytes(first, {});
  const absl::Status status = CheckBytes(first_bytes);
  if (!status.ok()) return status;
  const std::int64_t most = std::clamp<std::int64_t>(
      max_message_bytes_ - kFramingBytes, 1, kStreamedBytes);
  bool begun = false;
  absl::Span<const char> left;
  return RunStream(
      name, std::max(first_bytes, most + kFramingBytes),
      [&](grpc::ByteBuffer* message, Loans* loans) -> absl::StatusOr<bool> {
        if (!std::exchange(begun, true)) {
          *message = FrameMessage(first, {}, loans);
          return true;
        }
        if (left.empty()) {
          const absl::StatusOr<absl::Span<const char>> more = next();
          if (!more.ok()) return more.status();
          left = *more;
          if (left.empty()) return false;
        }
        const auto piece = left.subspan(0, static_cast<std::size_t>(most));
        left.remove_prefix(piece.size());
        *message = FrameData(piece, lend ? loans : nullptr);
        return true;
      },
      [&](const grpc::ByteBuffer& buffer) -> absl::Status {
        v1::ApplyRopeStreamResponse response;  // every response has only `data`
        const absl::StatusOr<ReceivedMessage> received =
            ReceivedMessage::Parse(buffer, {wire::kOwnData}, &response);
        if (!received.ok()) return received.status();
        for (const absl::Span<const char> piece : received->bytes(0).pieces) {
          const absl::Status taken = take(piece);
          if (!taken.ok()) return taken;
        }
        return absl::OkStatus();
      },
      options);
}

absl::Status Calls::RunStream(const std::string& name, std::int64_t announced,
                              const NextMessage& next, const TakeResponse& take,
                              const CallOptions& options) {
  auto context = std::make_unique<grpc::ClientContext>();
  const absl::StatusOr<std::string> id = Begin(options, context.get());
  if (!id.ok()) return id.status();
  absl::Status status;
  absl::Duration patience = absl::InfiniteDuration();
  if (!options.timeout) {
    // The client's timeout does not bound the whole stream, which may continue
    // while it makes progress.
    patience = timeout_;
    context->set_deadline(absl::ToChronoTime(absl::Now() + kLongestStream));
  }
  context->AddMetadata(wire::kMessageBytes, absl::StrCat(announced));
  Channels::Lease lease = channels_.Bulk();
  Loans loans;
  {
    StreamEnd end = RunBulkStream(
        lease->channel, absl::StrCat(kService, name), context.get(), patience,
        [&](grpc::ByteBuffer* message) { return next(message, &loans); }, take);
    status = std::move(end.local);
    if (status.ok() || end.silent) {
      status = Ended(status.ok() ? ToAbsl(end.status) : status, *id,
                     context->deadline());
    }
    status = WithRequestId(std::move(status), *id);
    context.reset();
  }
  Recall(loans, std::move(lease));
  return status;
}

void Calls::Recall(const Loans& loans, Channels::Lease lease) {
  if (loans.AwaitReturn(kGrace)) return;
  // The peer does not accept the bytes that gRPC is still writing, and gRPC
  // does not close the connection before they are written. TCP gives up only
  // after stuck_timeout, and until then no other call can use the connection.
  // So Drop() replaces and releases the connection, and gRPC may close it.
  // Drop() keeps the connection of small calls.
  channels_.Drop(std::move(lease));
  loans.AwaitReturn(absl::InfiniteDuration());
}

}  // namespace posenc
