// gRPC's side of one call: its headers, and its messages through a completion
// queue.
//
// gRPC's callback API does the same, for a third more of the processor's time
// in a call of 4 KiB and twice as much in one that is refused (docs/adr/0007):
// it hands most of its reactions to threads of an executor.
//
// Threads: the queue's threads call the reactor; a read, a write and the news
// that the peer is gone may come at the same time, on different threads. An
// operation's reaction may run before the function that starts it has returned.
//
// Lifetime: the stream deletes itself once it is finished, its operations have
// ended and gRPC has said how the call was closed, after OnDone(). Nothing may
// use it afterwards.

#pragma once

#include <atomic>
#include <string>

#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace posenc::server {

class CallQueue;

class PeerStream final {
 public:
  // Whoever answers the call.
  class Reactor {
   public:
    virtual ~Reactor() = default;
    // ok is false if there is no message, because the peer sends no more or is
    // gone.
    virtual void OnReadDone(bool /*ok*/) {}
    // ok is false if the peer is gone. Not called after StartWriteAndFinish().
    virtual void OnWriteDone(bool /*ok*/) {}
    // The peer is gone, or its deadline has passed. Called once at most, and
    // always before OnDone().
    virtual void OnCancel() {}
    // The last of all.
    virtual void OnDone() = 0;
  };

  // What happens to a stream, in gRPC's queue.
  struct Event {
    PeerStream* stream;
    void (PeerStream::*happen)(bool ok);
  };

  PeerStream(const PeerStream&) = delete;
  PeerStream& operator=(const PeerStream&) = delete;

  // The headers, which stay as they are, and the call's.
  const grpc::GenericServerContext& context() const { return context_; }
  grpc_call* c_call() { return context_.c_call(); }
  // Whether the call has ended without our doing.
  bool IsCancelled();

  // Names whoever answers: before the first operation, and not for a stream
  // that is only refused.
  void SetReactor(Reactor* reactor);

  // Sent with the status. Not after Finish() or StartWriteAndFinish().
  void AddTrailingMetadata(const std::string& key, const std::string& value) {
    context_.AddTrailingMetadata(key, value);
  }

  // At most one read and one write at a time. The messages outlive them.
  void StartRead(grpc::ByteBuffer* message);
  void StartWrite(const grpc::ByteBuffer* message);
  // One of these is called exactly once, while no write is under way.
  void StartWriteAndFinish(const grpc::ByteBuffer* message,
                           const grpc::Status& status);
  void Finish(const grpc::Status& status);

 private:
  friend class CallQueue;

  // Waits for a call.
  explicit PeerStream(CallQueue* queue);
  ~PeerStream() = default;

  void Arrived(bool ok);
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  void Finished(bool ok);
  void Closed(bool ok);
  // Whether the event is the last of a call that nobody answered.
  bool EndsRefusal(const Event& event) const {
    return event.happen == &PeerStream::Finished && reactor_.load() == nullptr;
  }
  // Something has ended; the last deletes the stream.
  void End();

  CallQueue* const queue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  std::atomic<Reactor*> reactor_{nullptr};
  std::atomic<bool> cancelled_{false}, told_{false};
  // What has not ended: the service's Begin(), the finish, gRPC's word of how
  // the call was closed, and a read or a write under way.
  std::atomic<int> open_{3};

  Event arrived_{this, &PeerStream::Arrived};
  Event read_{this, &PeerStream::ReadDone};
  Event written_{this, &PeerStream::WriteDone};
  Event finished_{this, &PeerStream::Finished};
  Event closed_{this, &PeerStream::Closed};
};

}  // namespace posenc::server
