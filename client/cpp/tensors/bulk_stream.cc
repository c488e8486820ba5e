#include "client/cpp/tensors/bulk_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/generic/generic_stub.h"

namespace posenc {
namespace {

// A longer wait counts as infinite, because the time of its end could overflow.
constexpr absl::Duration kForever = absl::Hours(24 * 365);

}  // namespace

grpc::Status BulkStream::Run(const std::shared_ptr<grpc::Channel>& channel,
                             const std::string& method,
                             grpc::ClientContext* context, const Next& next,
                             const Take& take, absl::Status* local) {
  grpc::GenericStub stub(channel);
  stub.PrepareBidiStreamingCall(context, method, grpc::StubOptions(), this);
  // Reads and writes are started outside of gRPC's callbacks, so the call needs
  // a hold: gRPC does not end the call before RemoveHold().
  AddHold();
  StartCall();
  StartRead(&incoming_);
  const auto fail = [&](const absl::Status& error) {
    if (!local->ok()) return;
    *local = error;
    stopped_ = true;
    context->TryCancel();
  };
  for (bool more = true; more;) {
    absl::Status status;
    switch (Await()) {
      case Event::kMayWrite:
        status = Write(next);
        break;
      case Event::kResponse:
        // After an error the remaining responses are read and dropped: gRPC
        // does not end the call before that.
        status = Read(local->ok() ? &take : nullptr);
        break;
      case Event::kSilence:
        status = absl::DeadlineExceededError(absl::StrCat(
            "the stream stood still for ", absl::FormatDuration(patience_),
            " after ", answered_, " responses"));
        silent_ = local->ok();
        break;
      case Event::kNoMore:
        more = false;
        break;
    }
    if (!status.ok()) fail(status);
  }
  RemoveHold();
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
  outgoing_.Clear();  // returns lent slices
  return status_;
}

BulkStream::Event BulkStream::Await() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto may_write = [this] {
    return !stopped_ && !writing_ && !write_failed_ && !no_more_;
  };
  const auto something = [&] {
    return response_ready_ || no_more_ || may_write();
  };
  if (patience_ > kForever) {
    changed_.wait(lock, something);
  } else if (!changed_.wait_for(lock, absl::ToChronoNanoseconds(patience_),
                                something)) {
    return Event::kSilence;
  }
  // Writes come first, so that the server has work while a response is taken.
  if (may_write()) return Event::kMayWrite;
  return response_ready_ ? Event::kResponse : Event::kNoMore;
}

absl::Status BulkStream::Write(const Next& next) {
  outgoing_.Clear();
  const absl::StatusOr<bool> more = next(&outgoing_);
  if (!more.ok()) return more.status();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    writing_ = true;
  }
  if (*more) {
    StartWrite(&outgoing_);
  } else {
    stopped_ = true;
    StartWritesDone();
  }
  return absl::OkStatus();
}

absl::Status BulkStream::Read(const Take* take) {
  // The next response may arrive while `take` processes this response.
  grpc::ByteBuffer response;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    response.Swap(&incoming_);
    response_ready_ = false;
  }
  StartRead(&incoming_);
  ++answered_;
  return take == nullptr ? absl::OkStatus() : (*take)(response);
}

void BulkStream::OnReadDone(bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  (ok ? response_ready_ : no_more_) = true;
  changed_.notify_all();
}

void BulkStream::OnWriteDone(bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  writing_ = false;
  if (!ok) write_failed_ = true;
  changed_.notify_all();
}

void BulkStream::OnWritesDoneDone(bool ok) { OnWriteDone(ok); }

void BulkStream::OnDone(const grpc::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_ = status;
  done_ = true;
  changed_.notify_all();
}

}  // namespace posenc
