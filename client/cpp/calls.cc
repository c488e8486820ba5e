#include "calls.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bulk_stream.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "status_type.h"

namespace posenc {
namespace {

constexpr char kService[] = "/posenc.v1.PositionalEncodingService/";
constexpr char kMessageBytes[] = "posenc-message-bytes";

// The most that protobuf can frame: 2 GiB - 1.
constexpr std::int64_t kMaxProtoBytes = std::numeric_limits<int>::max();

// Smaller messages gain nothing from a connection of their own.
constexpr std::int64_t kBulkBytes = 64 << 10;

// Best in measurements: requests, work and responses overlap, and a chunk stays
// in the cache.
constexpr std::int64_t kChunkBytes = 4 << 20;
// One each being sent, computed, received and taken.
constexpr std::int64_t kWindow = 4;

// What is left to a message beside a chunk: settings, positions, framing.
constexpr std::int64_t kMessageOverhead = 64 << 10;

// Servers end calls without a deadline by themselves.
constexpr absl::Duration kLongestStream = absl::Hours(24);

// How long a connection may take to send what a call left behind.
constexpr absl::Duration kGrace = absl::Milliseconds(200);

}  // namespace

absl::Status ToAbsl(const grpc::Status& status) {
  absl::Status out(static_cast<absl::StatusCode>(status.error_code()),
                   status.error_message());
  if (!status.ok() && !status.error_details().empty()) {
    out.SetPayload(kStatusType, absl::Cord(status.error_details()));
  }
  return out;
}

absl::Status SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  // gRPC rounds deadlines up to its next millisecond: a quick call could still
  // pass.
  if (timeout <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "timeout: ", absl::FormatDuration(timeout), "; must be above 0"));
  }
  if (timeout != absl::InfiniteDuration()) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(std::int64_t bytes) {
  if (bytes <= kMaxProtoBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("request: ", bytes, " bytes; the limit is ", kMaxProtoBytes,
                   ", split the batch"));
}

Client::Calls::Calls(const ClientOptions& options)
    : channels_(std::make_unique<Channels>(options)),
      stub_(v1::PositionalEncodingService::NewStub(channels_->small())),
      timeout_(options.timeout),
      max_message_bytes_(std::clamp<std::int64_t>(options.max_message_bytes, 0,
                                                  kMaxProtoBytes)),
      stream_above_bytes_(
          std::min(options.stream_above_bytes.value_or(max_message_bytes_),
                   max_message_bytes_)) {}

Client::Calls::Calls(std::shared_ptr<grpc::Channel> channel,
                     absl::Duration timeout)
    : channels_(std::make_unique<Channels>(std::move(channel))),
      stub_(v1::PositionalEncodingService::NewStub(channels_->small())),
      timeout_(timeout),
      max_message_bytes_(kMaxProtoBytes),
      stream_above_bytes_(kMaxProtoBytes) {}

Client::Calls::Calls(std::shared_ptr<Stub> stub, absl::Duration timeout)
    : stub_(std::move(stub)),
      timeout_(timeout),
      max_message_bytes_(kMaxProtoBytes),
      stream_above_bytes_(kMaxProtoBytes) {}

bool Client::Calls::MustStream(std::int64_t bytes,
                               absl::Span<const TensorField> tensors) const {
  // Nothing but the tensors can be cut.
  const auto has_bytes = [](const TensorField& field) {
    return !field.view->bytes.empty();
  };
  return can_stream() && bytes > stream_above_bytes_ &&
         std::any_of(tensors.begin(), tensors.end(), has_bytes);
}

std::int64_t Client::Calls::ChunkBytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!chunk_bytes_) {
    v1::GetServerInfoResponse info;
    const absl::Status status = Call(
        &Stub::GetServerInfo, v1::GetServerInfoRequest(), CallOptions(), &info);
    std::int64_t bytes = kChunkBytes;
    if (status.ok() && info.limits().stream_chunk_bytes() > 0) {
      bytes = info.limits().stream_chunk_bytes();
    }
    // What a server does not tell now it may tell later.
    bytes = std::clamp<std::int64_t>(
        bytes, 1,
        std::max<std::int64_t>(max_message_bytes_ - kMessageOverhead, 1));
    if (!status.ok()) return bytes;
    chunk_bytes_ = bytes;
  }
  return *chunk_bytes_;
}

absl::StatusOr<TakenTensors> Client::Calls::BulkUnary(
    const char* name, const BulkRequest& request, const BulkResponse& response,
    std::int64_t expected, const CallOptions& options) {
  const std::int64_t bytes = MessageBytes(*request.message, request.tensors);
  absl::Status status = CheckBytes(bytes);
  if (!status.ok()) return status;
  auto context = std::make_unique<grpc::ClientContext>();
  status = SetDeadline(timeout(options), context.get());
  if (!status.ok()) return status;
  context->AddMetadata(kMessageBytes, absl::StrCat(bytes));
  std::shared_ptr<grpc::Channel> channel =
      std::max(bytes, expected) >= kBulkBytes ? channels_->Bulk()
                                              : channels_->small();
  Loans loans;
  absl::StatusOr<TakenTensors> taken;
  {
    // Polled by this thread alone: no other need wake up.
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(channel);
    grpc::ByteBuffer outgoing =
        FrameMessage(*request.message, request.tensors, request.owner, &loans);
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
      taken = ToAbsl(outcome);
    } else {
      const absl::StatusOr<ReceivedMessage> received =
          ReceivedMessage::Parse(incoming, response.tensors, response.message);
      if (received.ok()) {
        taken = TakeTensors(*received, response.into);
      } else {
        taken = received.status();
      }
    }
    context.reset();
  }
  Recall(loans, std::move(channel));
  return taken;
}

absl::Status Client::Calls::Stream(const char* name, std::int64_t announced,
                                   bool one_to_one, const NextRequest& next,
                                   const TakeResponse& take,
                                   const CallOptions& options) {
  if (channels_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, ": this client has a stub only; streams need a channel"));
  }
  auto context = std::make_unique<grpc::ClientContext>();
  absl::Status status = SetDeadline(timeout(options), context.get());
  if (!status.ok()) return status;
  absl::Duration patience = absl::InfiniteDuration();
  if (!options.timeout) {
    patience = timeout_;
    context->set_deadline(absl::ToChronoTime(absl::Now() + kLongestStream));
  }
  if (announced > 0) {
    context->AddMetadata(kMessageBytes, absl::StrCat(announced));
  }
  std::shared_ptr<grpc::Channel> channel = channels_->Bulk();
  Loans loans;
  {
    // A server stream has one request, whose responses are not counted.
    BulkStream stream(one_to_one ? kWindow : 2, patience);
    const std::int64_t most = announced > 0 ? announced : max_message_bytes_;
    const auto frame = [&](grpc::ByteBuffer* buffer) -> absl::StatusOr<bool> {
      BulkRequest request;
      const absl::StatusOr<bool> more = next(&request);
      if (!more.ok() || !*more) return more;
      const std::int64_t bytes =
          MessageBytes(*request.message, request.tensors);
      if (bytes > most) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "message ", stream.sent(), ": ", bytes, " bytes; at most ", most,
            announced > 0 ? ", as announced" : ", send smaller parts"));
      }
      *buffer = FrameMessage(*request.message, request.tensors, request.owner,
                             &loans);
      return true;
    };
    absl::Status local;
    const grpc::Status outcome = stream.Run(
        channel, absl::StrCat(kService, name), context.get(), frame,
        [&](const grpc::ByteBuffer& response) -> absl::Status {
          if (one_to_one && stream.answered() > stream.sent()) {
            return absl::InternalError("more responses than requests");
          }
          return take(response);
        },
        &local);
    status = local.ok() ? ToAbsl(outcome) : local;
    if (status.ok() && one_to_one && stream.answered() != stream.sent()) {
      status = absl::InternalError(absl::StrCat("the stream ended after ",
                                                stream.answered(), " of ",
                                                stream.sent(), " responses"));
    }
    context.reset();
  }
  Recall(loans, std::move(channel));
  return status;
}

void Client::Calls::Recall(const Loans& loans,
                           std::shared_ptr<grpc::Channel> channel) {
  if (loans.AwaitReturn(kGrace)) return;
  // The peer does not take what gRPC is still writing; gRPC closes no
  // connection before that. Others should not go there until TCP gives up
  // (stuck_timeout).
  channels_->Drop(channel);
  channel.reset();
  loans.AwaitReturn(absl::InfiniteDuration());
}

}  // namespace posenc
