#include "client/cpp/tensors/bulk_stream.h"

#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"

namespace posenc {
namespace {

// A longer wait counts as infinite, because the time of its end could overflow.
constexpr absl::Duration kForever = absl::Hours(24 * 365);

// Waits for an event; returns false if no event comes within `patience`.
bool Await(absl::Duration patience, grpc::CompletionQueue* queue, void** tag,
           bool* ok) {
  if (patience > kForever) return queue->Next(tag, ok);
  return queue->AsyncNext(tag, ok,
                          absl::ToChronoTime(absl::Now() + patience)) ==
         grpc::CompletionQueue::GOT_EVENT;
}

}  // namespace

StreamEnd RunBulkStream(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
    grpc::ClientContext* context, absl::Duration patience,
    const std::function<absl::StatusOr<bool>(grpc::ByteBuffer*)>& next,
    const std::function<absl::Status(const grpc::ByteBuffer&)>& take) {
  StreamEnd end;
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  const auto call = stub.PrepareCall(context, method, &queue);
  // The addresses of these two variables are the tags of writes and reads. The
  // start of the call counts as its first write.
  bool writing = true, reading = true;
  grpc::ByteBuffer incoming;
  call->StartCall(&writing);
  call->Read(&incoming, &reading);
  bool stopped = false;       // no further write begins
  std::int64_t answered = 0;  // responses taken so far
  const auto fail = [&](const absl::Status& error) {
    if (!end.local.ok()) return;
    end.local = error;
    stopped = true;
    context->TryCancel();
  };
  while (reading) {
    // Writes come first, so that the server has work while a response is taken.
    if (!writing && !stopped) {
      grpc::ByteBuffer outgoing;
      const absl::StatusOr<bool> more = next(&outgoing);
      if (!more.ok()) {
        fail(more.status());
        continue;
      }
      writing = true;
      if (*more) {
        call->Write(outgoing, &writing);
      } else {
        stopped = true;
        call->WritesDone(&writing);
      }
    }
    void* tag = nullptr;
    bool ok = false;
    if (!Await(patience, &queue, &tag, &ok)) {
      if (end.local.ok()) end.silent = true;
      fail(absl::DeadlineExceededError(absl::StrCat(
          "the stream stood still for ", absl::FormatDuration(patience),
          " after ", answered, " responses")));
    } else if (tag == &writing) {
      writing = false;
      if (!ok) stopped = true;  // the call is over: its status says why
    } else if (!ok) {
      reading = false;  // the server has ended the stream
    } else {
      const grpc::ByteBuffer response = std::exchange(incoming, {});
      call->Read(&incoming, &reading);
      ++answered;
      // After an error the remaining responses are dropped.
      const absl::Status taken =
          end.local.ok() ? take(response) : absl::OkStatus();
      if (!taken.ok()) fail(taken);
    }
  }
  call->Finish(&end.status, &end);
  queue.Shutdown();
  void* tag;
  bool ok;
  while (queue.Next(&tag, &ok)) continue;
  return end;
}

}  // namespace posenc
