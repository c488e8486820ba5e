// A stream of bulk messages, driven from the caller's thread.
//
// gRPC's threads send and receive. The caller's thread provides messages and
// takes responses: the callbacks of the public API run in this thread, and a
// slow callback delays only its own stream. The caller's thread and gRPC's
// threads share a few flags under one mutex:
//
//   caller's thread                      gRPC's threads
//   Await() waits for an event     <--   OnReadDone, OnWriteDone: set a flag
//   Write(): next(), StartWrite    -->   send outgoing_
//   Read():  StartRead, take()     -->   receive into incoming_
//
// At most one write and one read are under way at a time, and each of the two
// buffers belongs to gRPC during that time:
// - `outgoing_` from StartWrite() to OnWriteDone() (writing_ is true);
// - `incoming_` from StartRead() to OnReadDone() (response_ready_ is false).
//
// The next read is started before a response is taken, so that one response
// arrives while another is used. Later responses wait in gRPC's flow control,
// so that memory stays bounded if the caller is slow.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"

namespace posenc {

class BulkStream final
    : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Fills in the next message; returns false after the last message.
  using Next = std::function<absl::StatusOr<bool>(grpc::ByteBuffer*)>;
  // Takes the next response.
  using Take = std::function<absl::Status(const grpc::ByteBuffer&)>;

  // If nothing happens for `patience`, the stream is cancelled. If `patience`
  // is infinite, only the call's deadline ends the stream.
  explicit BulkStream(absl::Duration patience) : patience_(patience) {}

  // Runs the call to its end. Call Run() only once. `next` and `take` are
  // called in this thread. The first error of either function, or the end of
  // `patience`, cancels the call and is stored in `local`. If `local` is OK,
  // the call's status is returned.
  grpc::Status Run(const std::shared_ptr<grpc::Channel>& channel,
                   const std::string& method, grpc::ClientContext* context,
                   const Next& next, const Take& take, absl::Status* local);

  // True if `patience` ended the call; `local` is then DEADLINE_EXCEEDED.
  bool silent() const { return silent_; }

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnWritesDoneDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  enum class Event {
    kMayWrite,  // nothing is being written
    kResponse,  // incoming_ has a response
    kNoMore,    // the server has ended the stream, and everything is read
    kSilence    // none of these within `patience_`
  };
  Event Await();
  // Sends the message of `next`; half-closes the stream if there is none.
  absl::Status Write(const Next& next);
  // Gives a response to `take`; drops it if `take` is null.
  absl::Status Read(const Take* take);

  const absl::Duration patience_;

  // Used only by the caller's thread.
  std::int64_t answered_ = 0;  // responses taken so far
  bool silent_ = false;
  bool stopped_ = false;       // no further write begins
  grpc::ByteBuffer outgoing_;  // gRPC uses it while writing_

  // Guards the members below. For the buffers, see the top of this file.
  std::mutex mutex_;
  std::condition_variable changed_;  // one of the flags was set
  bool writing_ = false;
  bool write_failed_ = false;  // the call is over: its status says why
  bool response_ready_ = false;
  bool no_more_ = false;
  bool done_ = false;
  grpc::Status status_;  // valid if done_
  grpc::ByteBuffer incoming_;
};

}  // namespace posenc
