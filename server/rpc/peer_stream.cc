#include "server/rpc/peer_stream.h"

#include <cstdlib>
#include <utility>

#include "absl/hash/hash.h"
#include "grpc/byte_buffer.h"
#include "grpc/byte_buffer_reader.h"
#include "grpc/grpc_security.h"
#include "grpc/support/alloc.h"
#include "server/rpc/call_queue.h"

namespace posenc::server {
namespace {

grpc_op Operation(grpc_op_type type) {
  grpc_op operation = {};
  operation.op = type;
  return operation;
}

// The same slices for gRPC's core. Most messages have one.
grpc_byte_buffer* ToCore(const grpc::ByteBuffer& message) {
  grpc::Slice slice;
  if (message.TrySingleSlice(&slice).ok()) {
    grpc_slice raw = slice.c_slice();
    grpc_byte_buffer* const buffer = grpc_raw_byte_buffer_create(&raw, 1);
    grpc_slice_unref(raw);
    return buffer;
  }
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) {
    std::abort();  // we have made it, and not compressed it
  }
  absl::InlinedVector<grpc_slice, 8> raw;
  for (const grpc::Slice& each : slices) raw.push_back(each.c_slice());
  grpc_byte_buffer* const buffer =
      grpc_raw_byte_buffer_create(raw.data(), raw.size());
  for (const grpc_slice& each : raw) grpc_slice_unref(each);
  return buffer;
}

}  // namespace

PeerStream::~PeerStream() {
  DropOutgoing();
  if (incoming_ != nullptr) grpc_byte_buffer_destroy(incoming_);
  if (call_ != nullptr) grpc_call_unref(call_);
}

void PeerStream::Await(grpc_server* server, grpc_completion_queue* events) {
  const grpc_call_error error =
      grpc_server_request_call(server, &call_, &headers_.details_,
                               &headers_.metadata_, events, events, &arrived_);
  if (error != GRPC_CALL_OK) std::abort();  // `events` is not the server's
}

// A read may fail before gRPC says that the call is closed.
bool PeerStream::IsCancelled() {
  return cancelled_.load() || grpc_call_failed_before_recv_message(call_) != 0;
}

// The peer may be gone before there is anybody to tell. If gRPC was asked
// already, its word may come on another thread at this moment: whoever is the
// second of the two tells the reactor.
void PeerStream::SetReactor(Reactor* reactor) {
  reactor_.store(reactor);
  if (cancelled_.load() && !told_.exchange(true)) reactor->OnCancel();
}

void PeerStream::Watch() {
  if (asked_.exchange(true)) return;
  ++open_;
  if (queue_->MayOperate()) return AskHowClosed();
  Post(&watch_later_);
}

void PeerStream::AskHowClosed() {
  Operations operations;
  AddClose(&operations);
  Run(operations, &closed_);
}

void PeerStream::StartRead() {
  ++open_;
  if (queue_->MayOperate()) return Read();
  Post(&read_later_);
}

void PeerStream::Read() {
  grpc_op read = Operation(GRPC_OP_RECV_MESSAGE);
  read.data.recv_message.recv_message = &incoming_;
  Run({read}, &read_);
}

std::size_t PeerStream::message_bytes() const {
  return incoming_ == nullptr ? 0 : grpc_byte_buffer_length(incoming_);
}

std::vector<grpc::Slice> PeerStream::TakeMessage() {
  std::vector<grpc::Slice> slices;
  if (incoming_ == nullptr) return slices;
  grpc_byte_buffer_reader reader;
  if (grpc_byte_buffer_reader_init(&reader, incoming_) != 0) {
    grpc_slice slice;
    while (grpc_byte_buffer_reader_next(&reader, &slice) != 0) {
      slices.emplace_back(slice, grpc::Slice::STEAL_REF);
    }
    grpc_byte_buffer_reader_destroy(&reader);
  }
  grpc_byte_buffer_destroy(incoming_);
  incoming_ = nullptr;
  return slices;
}

void PeerStream::StartWrite(const grpc::ByteBuffer& message) {
  ++open_;
  Operations operations;
  AddHeaders(&operations);
  AddMessage(message, &operations);
  Send(operations, &written_);
}

void PeerStream::StartWriteAndFinish(const grpc::ByteBuffer& message) {
  Operations operations;
  AddHeaders(&operations);
  AddMessage(message, &operations);
  operations.back().flags = GRPC_WRITE_BUFFER_HINT;
  AddEnding(CallEnding(), &operations);
  AddLast(&operations);
  Send(operations, &finished_);
}

// Who is only refused is told in one operation with all that there is.
void PeerStream::Finish(const CallEnding& ending) {
  Operations operations;
  AddHeaders(&operations);
  const CallEnding* last = &ending;
  // What is handed to the queue's thread outlives the caller's.
  if (!queue_->MayOperate()) {
    handed_ = std::make_unique<Handed>();
    last = &handed_->ending.emplace(ending);
  }
  AddEnding(*last, &operations);
  AddLast(&operations);
  const bool refused = reactor_.load() == nullptr;
  Send(operations, refused ? &refused_ : &finished_);
}

void PeerStream::Drop() {
  Operations operations;
  AddLast(&operations);
  Run(operations, &refused_);
  grpc_call_cancel_with_status(call_, GRPC_STATUS_RESOURCE_EXHAUSTED,
                               "too many calls at once on one connection",
                               nullptr);
}

void PeerStream::AddHeaders(Operations* operations) {
  if (headers_sent_) return;
  headers_sent_ = true;
  operations->push_back(Operation(GRPC_OP_SEND_INITIAL_METADATA));
}

void PeerStream::AddMessage(const grpc::ByteBuffer& message,
                            Operations* operations) {
  outgoing_ = ToCore(message);
  operations->push_back(Operation(GRPC_OP_SEND_MESSAGE));
  operations->back().data.send_message.send_message = outgoing_;
}

void PeerStream::AddEnding(const CallEnding& ending, Operations* operations) {
  operations->push_back(Operation(GRPC_OP_SEND_STATUS_FROM_SERVER));
  auto& status = operations->back().data.send_status_from_server;
  status.status = ending.code();
  status.status_details = const_cast<grpc_slice*>(ending.details());
  status.trailing_metadata_count = ending.trailers().size();
  status.trailing_metadata =
      const_cast<grpc_metadata*>(ending.trailers().data());
}

void PeerStream::AddClose(Operations* operations) {
  operations->push_back(Operation(GRPC_OP_RECV_CLOSE_ON_SERVER));
  operations->back().data.recv_close_on_server.cancelled = &close_cancelled_;
}

void PeerStream::AddLast(Operations* operations) {
  if (asked_.exchange(true)) return;
  asked_last_ = true;
  AddClose(operations);
}

void PeerStream::Send(const Operations& operations, Event* event) {
  if (queue_->MayOperate()) return Run(operations, event);
  if (handed_ == nullptr) handed_ = std::make_unique<Handed>();
  handed_->operations = operations;
  handed_->event = event;
  Post(&send_later_);
}

// gRPC says at once that it has done nothing, if there is nothing to do.
void PeerStream::Post(Event* event) {
  const grpc_call_error error =
      grpc_call_start_batch(call_, nullptr, 0, event, nullptr);
  if (error != GRPC_CALL_OK) std::abort();
}

// gRPC refuses operations only that are wrong whatever the peer does.
void PeerStream::Run(const Operations& operations, Event* event) {
  const grpc_call_error error = grpc_call_start_batch(
      call_, operations.data(), operations.size(), event, nullptr);
  if (error != GRPC_CALL_OK) std::abort();
}

void PeerStream::DropOutgoing() {
  if (outgoing_ == nullptr) return;
  grpc_byte_buffer_destroy(outgoing_);
  outgoing_ = nullptr;
}

// If there is no call any more to wait for, gRPC does not say that it is
// closed.
bool PeerStream::Take(bool ok) {
  if (!ok) {
    queue_->Delete(this);
    return false;
  }
  char* const peer = grpc_call_get_peer(call_);
  headers_.peer_ = peer;
  headers_.peer_id_ = absl::HashOf(headers_.peer_);
  gpr_free(peer);
  return true;
}

bool PeerStream::Begin(absl::Duration waited) {
  headers_.waited_ = waited;
  queue_->service_->Begin(this);
  const bool refused = reactor_.load() == nullptr;
  End();
  return refused;
}

void PeerStream::Ask() {
  asked_.store(true);
  ++open_;
  AskHowClosed();
}

void PeerStream::Forget() {
  queue_->service_->Gone(*this);
  --open_;  // nothing finishes it
  End();
}

void PeerStream::ReadLater(bool /*ok*/) { Read(); }

void PeerStream::WatchLater(bool /*ok*/) { AskHowClosed(); }

void PeerStream::SendLater(bool /*ok*/) {
  Run(handed_->operations, handed_->event);
}

void PeerStream::ReadDone(bool ok) {
  reactor_.load()->OnReadDone(ok && incoming_ != nullptr);
  End();
}

void PeerStream::WriteDone(bool ok) {
  DropOutgoing();
  reactor_.load()->OnWriteDone(ok);
  End();
}

void PeerStream::Finished(bool ok) {
  if (asked_last_) TellIfCancelled(ok);
  End();
}

void PeerStream::Closed(bool ok) {
  TellIfCancelled(ok);
  End();
}

void PeerStream::TellIfCancelled(bool ok) {
  if (ok && close_cancelled_ == 0) return;
  cancelled_.store(true);
  queue_->call_cancelled_.store(true);
  Reactor* const reactor = reactor_.load();
  if (reactor != nullptr && !told_.exchange(true)) reactor->OnCancel();
}

void PeerStream::End() {
  if (--open_ > 0) return;
  if (Reactor* const reactor = reactor_.load()) reactor->OnDone();
  queue_->Delete(this);
}

}  // namespace posenc::server
