// gRPC's part of one call: its headers, and operations on its messages. A
// coroutine awaits each operation, which returns whether it succeeded.

#pragma once

#include <coroutine>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "grpc/support/time.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "grpcpp/support/status.h"
#include "server/call/loop.h"
#include "server/call/stop.h"

namespace posenc::server {

// An operation of gRPC. `start` begins it, and gets the tag of its end.
template <typename Start>
class Operation final : private Loop::Event {
 public:
  explicit Operation(Start start) : start_(std::move(start)) {}

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> coroutine) {
    coroutine_ = coroutine;
    start_(static_cast<Loop::Event*>(this));
  }
  bool await_resume() const { return ok_; }

 private:
  void Happen(bool ok) override {
    ok_ = ok;
    coroutine_.resume();
  }

  const Start start_;
  std::coroutine_handle<> coroutine_;
  bool ok_ = false;
};

// Must be used on the thread of its loop.
class CallStream {
 public:
  // Waits for a message, or for the call's stop.
  class Reading final : private Stop::Pending {
   public:
    explicit Reading(CallStream* stream) : stream_(stream) {}

    bool await_ready() const { return stream_->stop_->requested(); }
    void await_suspend(std::coroutine_handle<> coroutine) {
      coroutine_ = coroutine;
      stream_->stop_->Add(this);
      stream_->reader_ = this;
      stream_->read_.Start();
    }
    bool await_resume() {
      if (coroutine_) stream_->stop_->Remove(this);
      return ok_;
    }

   private:
    friend class CallStream;

    void GiveUp() override {
      if (std::exchange(stream_->reader_, nullptr) == nullptr) return;
      stream_->loop_->Post(this);
    }
    void Happen(bool /*ok*/) override { coroutine_.resume(); }

    CallStream* const stream_;
    std::coroutine_handle<> coroutine_;
    bool ok_ = false;
  };

  // `stop` is requested when the peer is gone or the call's deadline has
  // passed.
  CallStream(Loop* loop, Stop* stop)
      : loop_(loop), stop_(stop), stream_(&context_), closing_(this) {}
  CallStream(const CallStream&) = delete;
  CallStream& operator=(const CallStream&) = delete;

  // Waits for a call. If the result is false, the server shuts down, and no
  // other function may be called.
  auto Arrives(grpc::AsyncGenericService* service) {
    context_.AsyncNotifyWhenDone(static_cast<Loop::Event*>(&closing_));
    return Operation([this, service](Loop::Event* event) {
      service->RequestCall(&context_, &stream_, loop_->queue(), loop_->queue(),
                           event);
    });
  }
  const grpc::GenericServerContext& context() const { return context_; }

  // Reads a message. Only one read may be in progress. The result is false if
  // there is no further message, or the stop was requested. After a stop,
  // gRPC's read may continue until the call closes.
  Reading Read() { return Reading(this); }
  // Returns the message that was read. May be called only once for each
  // message.
  std::vector<grpc::Slice> TakeMessage() {
    std::vector<grpc::Slice> slices;
    // Dump() cannot fail, because gRPC has refused compressed messages.
    (void)incoming_.Dump(&slices);
    incoming_.Clear();
    return slices;
  }

  // Writes a message, and clears it. Only one write may be in progress. If
  // `with_status` is true, also writes the status OK after the message. The
  // result is false if the peer is gone.
  auto Write(grpc::ByteBuffer* message, bool with_status) {
    return Operation([this, message, with_status](Loop::Event* event) {
      if (with_status) {
        stream_.WriteAndFinish(*message, grpc::WriteOptions(), grpc::Status::OK,
                               event);
      } else {
        stream_.Write(*message, event);
      }
      message->Clear();
    });
  }
  auto WriteStatus(grpc::Status status) {
    return Operation([this, status = std::move(status)](Loop::Event* event) {
      stream_.Finish(status, event);
    });
  }
  void AddTrailer(const char* name, const char* value) {
    context_.AddTrailingMetadata(name, value);
  }
  // Cancels the call in gRPC, so that all pending operations fail.
  void Cancel() { context_.TryCancel(); }

  // Waits for gRPC's event that the call is over. Must be awaited last, after
  // the status was written. Returns the reason for a cancellation, or OK.
  auto& Closes() { return closing_; }

 private:
  // gRPC's read, which may continue after Reading has stopped waiting for it.
  class ReadOperation final : private Loop::Event {
   public:
    explicit ReadOperation(CallStream* stream) : stream_(stream) {}
    void Start() {
      under_way_ = true;
      stream_->stream_.Read(&stream_->incoming_,
                            static_cast<Loop::Event*>(this));
    }
    bool under_way() const { return under_way_; }

   private:
    void Happen(bool ok) override {
      under_way_ = false;
      Reading* const reading = std::exchange(stream_->reader_, nullptr);
      if (reading == nullptr) return stream_->closing_.ResumeIfOver();
      reading->ok_ = ok;
      reading->coroutine_.resume();
    }

    CallStream* const stream_;
    bool under_way_ = false;
  };

  // gRPC's event for the end of a call.
  class Closing final : private Loop::Event {
   public:
    explicit Closing(CallStream* stream) : stream_(stream) {}

    bool await_ready() const {
      return happened_ && !stream_->read_.under_way();
    }
    void await_suspend(std::coroutine_handle<> coroutine) {
      coroutine_ = coroutine;
    }
    absl::Status await_resume() const { return gone_; }

    void ResumeIfOver() {
      if (coroutine_ && await_ready()) coroutine_.resume();
    }

   private:
    friend class CallStream;

    void Happen(bool /*ok*/) override {
      happened_ = true;
      if (stream_->context_.IsCancelled()) gone_ = WhyCancelled();
      if (coroutine_) return ResumeIfOver();
      if (!gone_.ok()) stream_->stop_->Request(gone_);
    }

    // If the client's deadline has passed, gRPC says only that the call is
    // cancelled. The client's own cancellation may come a little before the
    // deadline, so a deadline within 20 ms counts as passed.
    absl::Status WhyCancelled() const {
      const gpr_timespec deadline = stream_->context_.raw_deadline();
      const gpr_timespec soon = gpr_time_add(
          gpr_now(deadline.clock_type), gpr_time_from_millis(20, GPR_TIMESPAN));
      if (gpr_time_cmp(deadline, soon) > 0) {
        return absl::CancelledError("cancelled");
      }
      return absl::DeadlineExceededError("the client's deadline has passed");
    }

    CallStream* const stream_;
    bool happened_ = false;
    absl::Status gone_;
    std::coroutine_handle<> coroutine_;  // null: not awaited yet
  };

  Loop* const loop_;
  Stop* const stop_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  grpc::ByteBuffer incoming_;
  ReadOperation read_{this};
  Reading* reader_ = nullptr;  // the Reading that waits for read_
  Closing closing_;
};

}  // namespace posenc::server
