#include "server/rpc/small_call.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "grpc/grpc.h"
#include "server/convert/status.h"

namespace posenc::server {
namespace {

// A name, and a host that reflection repeats.
constexpr std::size_t kMostBytes = 4 << 10;

}  // namespace

void SmallCall::Start(PeerStream* stream, const Bounds& bounds) {
  stream_ = stream;
  bounds_ = bounds;
  self_ = shared_from_this();
  record_.started = absl::Now();
  if (bounds.observer != nullptr && !spec_.name.empty()) {
    bounds.observer->Started(spec_.name, spec_.stream);
  }
  stream->SetReactor(this);
  stream->Watch();
  Read();
}

void SmallCall::BeginTransfer(Transfers::Direction direction) {
  bounds_.transfers->Add(direction, 0, false, this, &message_);
  deadline_ = bounds_.deadlines->Add(
      std::shared_ptr<Deadlines::Owner>(shared_from_this(), this));
}

void SmallCall::EndTransfer() {
  bounds_.transfers->Remove(&message_);
  if (deadline_) bounds_.deadlines->Remove(*std::exchange(deadline_, {}));
}

void SmallCall::Read() {
  BeginTransfer(Transfers::Direction::kIn);
  stream_->StartRead();
}

grpc::ByteBuffer SmallCall::Sent(const google::protobuf::Message& message) {
  const grpc::Slice bytes(message.SerializeAsString());
  ++record_.messages_sent;
  record_.bytes_sent += static_cast<std::int64_t>(bytes.size());
  return {&bytes, 1};
}

void SmallCall::Write(const google::protobuf::Message& message) {
  BeginTransfer(Transfers::Direction::kOut);
  stream_->StartWrite(Sent(message));
}

// Its transfer ends with the call.
void SmallCall::WriteLast(const google::protobuf::Message& message) {
  BeginTransfer(Transfers::Direction::kOut);
  stream_->StartWriteAndFinish(Sent(message));
}

void SmallCall::End(const absl::Status& status) {
  status_ = status;
  stream_->Finish({ToGrpcStatus(status), false});
}

void SmallCall::OnReadDone(bool ok) {
  EndTransfer();
  if (!ok) return OnLastMessage();
  const std::size_t size = stream_->message_bytes();
  ++record_.messages_received;
  record_.bytes_received += static_cast<std::int64_t>(size);
  const std::vector<grpc::Slice> slices = stream_->TakeMessage();
  if (size > kMostBytes) {
    return End(absl::ResourceExhaustedError("a message over 4 KiB"));
  }
  std::string message;
  for (const grpc::Slice& slice : slices) {
    message.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  OnMessage(message);
}

void SmallCall::OnWriteDone(bool ok) {
  EndTransfer();
  OnWritten(ok);
}

void SmallCall::OnDone() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  EndTransfer();
  if (bounds_.observer != nullptr && !spec_.name.empty()) Observe();
  OnEnd();
  self_.reset();
}

void SmallCall::Observe() {
  if (stream_->IsCancelled()) status_ = absl::CancelledError("cancelled");
  const std::string reason = ReasonName(status_);
  CallRecord record = RecordOf(stream_->headers(), spec_, status_, reason);
  record.started = record_.started;
  record.handling = absl::Now() - record_.started;
  record.messages_received = record_.messages_received;
  record.messages_sent = record_.messages_sent;
  record.bytes_received = record_.bytes_received;
  record.bytes_sent = record_.bytes_sent;
  bounds_.observer->Finished(record);
}

// gRPC's call is kept by a reference of its own, because cancelling may run
// reactions on this thread, and so cannot be done under the lock.
void SmallCall::Cancel(const absl::Status& why) {
  grpc_call* call = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (done_) return;
    call = stream_->c_call();
    grpc_call_ref(call);
  }
  grpc_call_cancel_with_status(call,
                               static_cast<grpc_status_code>(why.raw_code()),
                               std::string(why.message()).c_str(), nullptr);
  grpc_call_unref(call);
}

bool SmallCall::CutOff(Transfers::Direction /*direction*/,
                       std::uint64_t message, const absl::Status& why) {
  if (message_.number() != message) return false;
  Cancel(why);
  return true;
}

void SmallCall::Expire() {
  Cancel(absl::DeadlineExceededError(
      "a message took longer than the server's own deadline"));
}

}  // namespace posenc::server
