#include "server/rpc/peer_stream.h"

#include "grpc/grpc.h"
#include "server/rpc/call_queue.h"

namespace posenc::server {

PeerStream::PeerStream(CallQueue* queue) : queue_(queue), stream_(&context_) {
  context_.AsyncNotifyWhenDone(&closed_);
}

// A read may fail before gRPC says that the call is closed.
bool PeerStream::IsCancelled() {
  return cancelled_.load() ||
         grpc_call_failed_before_recv_message(c_call()) != 0;
}

// The peer may be gone before there is anybody to tell.
void PeerStream::SetReactor(Reactor* reactor) {
  reactor_.store(reactor);
  if (cancelled_.load() && !told_.exchange(true)) reactor->OnCancel();
}

void PeerStream::StartRead(grpc::ByteBuffer* message) {
  ++open_;
  stream_.Read(message, &read_);
}

void PeerStream::StartWrite(const grpc::ByteBuffer* message) {
  ++open_;
  stream_.Write(*message, &written_);
}

void PeerStream::StartWriteAndFinish(const grpc::ByteBuffer* message,
                                     const grpc::Status& status) {
  stream_.WriteAndFinish(*message, grpc::WriteOptions(), status, &finished_);
}

void PeerStream::Finish(const grpc::Status& status) {
  stream_.Finish(status, &finished_);
}

// If there is no call any more to wait for, gRPC does not say that it is
// closed.
void PeerStream::Arrived(bool ok) {
  if (!ok) return queue_->Delete(this);
  queue_->AwaitCall();
  queue_->service_->Begin(this);
  End();
}

void PeerStream::ReadDone(bool ok) {
  reactor_.load()->OnReadDone(ok);
  End();
}

void PeerStream::WriteDone(bool ok) {
  reactor_.load()->OnWriteDone(ok);
  End();
}

void PeerStream::Finished(bool /*ok*/) { End(); }

void PeerStream::Closed(bool /*ok*/) {
  if (context_.IsCancelled()) {
    cancelled_.store(true);
    Reactor* const reactor = reactor_.load();
    if (reactor != nullptr && !told_.exchange(true)) reactor->OnCancel();
  }
  End();
}

void PeerStream::End() {
  if (--open_ > 0) return;
  if (Reactor* const reactor = reactor_.load()) reactor->OnDone();
  queue_->Delete(this);
}

}  // namespace posenc::server
