// gRPC's side of one call: its headers, and its messages through a completion
// queue of gRPC's core.
//
// gRPC's C++ classes do the same for a seventh more of a call's instructions,
// and its callbacks wake threads of an executor up as well (docs/adr/0007).
//
// Threads: the queue's threads call the reactor; a read, a write and the news
// that the peer is gone may come at the same time, on different threads. An
// operation's reaction may run before the function that starts it has returned.
// Operations may be started on any thread; if the queue has one thread only,
// they are handed to it (CallQueue::MayOperate()).
//
// Lifetime: the stream deletes itself once it is finished, its operations have
// ended and gRPC has said how the call was closed, after OnDone(). Nothing may
// use it afterwards.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "grpc/grpc.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "grpcpp/support/status.h"
#include "server/rpc/call_ending.h"
#include "server/rpc/call_headers.h"
#include "server/rpc/open_calls.h"

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
    // always before OnDone(); as soon as it happens only after Watch().
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

  const CallHeaders& headers() const { return headers_; }
  grpc_call* c_call() { return call_; }
  // Whether the call has ended without our doing.
  bool IsCancelled();

  // The call has this place until gRPC has let go of it.
  void HoldPlace(OpenCalls::Place place) { place_ = std::move(place); }

  // Names whoever answers: before the first operation, and not for a stream
  // that is only refused.
  void SetReactor(Reactor* reactor);
  // From now on the reactor is told at once that the peer is gone. Else it sees
  // that when an operation fails, and is told when the call has ended: gRPC's
  // word then comes with that of the last operation, for 3,000 instructions
  // less. Not while another thread may finish the call. May be called again.
  void Watch();

  // At most one read and one write are under way.
  void StartRead();
  // The bytes of the message that was read, and the message itself, once.
  std::size_t message_bytes() const;
  std::vector<grpc::Slice> TakeMessage();
  // The message may be gone as soon as this has returned; the stream lets go of
  // its memory before the reaction.
  void StartWrite(const grpc::ByteBuffer& message);
  // One of these is called exactly once, while no write is under way.
  void StartWriteAndFinish(const grpc::ByteBuffer& message);
  void Finish(const CallEnding& ending);
  // Ends a call that has no reactor at once, instead: gRPC keeps nothing of it
  // but a few bytes to be sent, and reads no more of a peer who leaves 10,000
  // of these unread.
  void Drop();

 private:
  friend class CallQueue;
  using Operations = absl::InlinedVector<grpc_op, 4>;

  explicit PeerStream(CallQueue* queue) : queue_(queue) {}
  ~PeerStream();

  // Waits for a call. To be called once.
  void Await(grpc_server* server, grpc_completion_queue* events);

  // Of a call that has come: Begin(), or Ask() and then, as the event that it
  // brings about at once tells, Begin() or Forget().
  static bool Arrives(const Event& event) {
    return &event == &event.stream->arrived_;
  }
  // False if there is no call any more to wait for; the stream is gone then. If
  // there is one, the queue awaits another before this one can end.
  bool Take(bool ok);
  // Whether the call was only refused.
  bool Begin(absl::Duration waited);
  // Asks gRPC how the call was closed, before anything is done for it.
  void Ask();
  bool SaysGone(const Event* event) const { return event == &closed_; }
  void Forget();

  // Has gRPC say how the call is closed, once it is.
  void AskHowClosed();
  void ReadLater(bool ok);
  void WatchLater(bool ok);
  void SendLater(bool ok);
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  void Finished(bool ok);
  void Closed(bool ok);
  // gRPC has said how the call was closed.
  void TellIfCancelled(bool ok);
  void RefusalDone(bool ok) { Finished(ok); }
  // Whether the event is the last of a call that nobody answered.
  static bool EndsRefusal(const Event& event) {
    return event.happen == &PeerStream::RefusalDone;
  }
  // Something has ended; the last deletes the stream.
  void End();

  void AddHeaders(Operations* operations);
  void AddMessage(const grpc::ByteBuffer& message, Operations* operations);
  static void AddEnding(const CallEnding& ending, Operations* operations);
  void AddClose(Operations* operations);
  // Asks how the call was closed, if nobody has.
  void AddLast(Operations* operations);
  // Sends what the operations say; `event` follows.
  void Send(const Operations& operations, Event* event);
  void Run(const Operations& operations, Event* event);
  void Read();
  // Has the queue's thread react to `event`, which nothing else brings about.
  void Post(Event* event);
  void DropOutgoing();

  CallQueue* const queue_;
  OpenCalls::Place place_;
  grpc_call* call_ = nullptr;
  CallHeaders headers_;
  grpc_byte_buffer* incoming_ = nullptr;
  grpc_byte_buffer* outgoing_ = nullptr;
  bool headers_sent_ = false;
  std::atomic<bool> asked_{false};  // how the call was closed
  bool asked_last_ = false;         // with the last operation
  int close_cancelled_ = 0;         // gRPC's word
  std::atomic<Reactor*> reactor_{nullptr};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> told_{false};  // OnCancel() is or was called
  // What has not ended: the service's Begin(), the finish, gRPC's word of how
  // the call was closed if it comes alone, and a read or a write under way.
  std::atomic<int> open_{2};

  Event arrived_{this, nullptr};
  Event read_{this, &PeerStream::ReadDone};
  Event written_{this, &PeerStream::WriteDone};
  Event finished_{this, &PeerStream::Finished};
  Event closed_{this, &PeerStream::Closed};
  Event refused_{this, &PeerStream::RefusalDone};

  // What was handed to the queue's thread. Apart, since streams that refuse
  // hand nothing over: with it they would be larger than what malloc() keeps at
  // hand for each thread (1 KiB).
  struct Handed {
    Operations operations;
    std::optional<CallEnding> ending;
    Event* event = nullptr;
  };
  Event read_later_{this, &PeerStream::ReadLater};
  Event watch_later_{this, &PeerStream::WatchLater};
  Event send_later_{this, &PeerStream::SendLater};
  std::unique_ptr<Handed> handed_;
};

}  // namespace posenc::server
