// A stream of bulk messages, driven from the caller's thread: gRPC's own
// threads send and receive meanwhile.

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
  // Gives the next message; false where there is none.
  using Next = std::function<absl::StatusOr<bool>(grpc::ByteBuffer*)>;
  // Takes the next response.
  using Take = std::function<absl::Status(const grpc::ByteBuffer&)>;

  // At most `window` messages are sent ahead of their responses. `patience` is
  // how long nothing may happen.
  BulkStream(std::int64_t window, absl::Duration patience)
      : window_(window), patience_(patience) {}

  // Runs the call to its end, once. The first error of `next` or `take`
  // cancels it and comes back.
  grpc::Status Run(const std::shared_ptr<grpc::Channel>& channel,
                   const std::string& method, grpc::ClientContext* context,
                   const Next& next, const Take& take, absl::Status* local);

  // What the peer answered and was asked, once it has run.
  std::int64_t sent() const { return sent_; }
  std::int64_t answered() const { return answered_; }

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnWritesDoneDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  enum class Event { kMayWrite, kResponse, kNoMore, kSilence };
  Event Await();
  absl::Status Write(const Next& next);
  absl::Status Read(const Take* take);

  const std::int64_t window_;
  const absl::Duration patience_;

  // The caller's thread's.
  std::int64_t sent_ = 0;
  std::int64_t answered_ = 0;
  bool stopped_ = false;  // nothing more is to be written
  grpc::ByteBuffer outgoing_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool writing_ = false;
  bool write_failed_ = false;
  bool response_ready_ = false;  // in incoming_
  bool no_more_ = false;
  bool done_ = false;
  grpc::Status status_;
  grpc::ByteBuffer incoming_;
};

}  // namespace posenc
