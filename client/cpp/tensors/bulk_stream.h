// A stream of bulk messages, which runs in the caller's thread from beginning
// to end. The thread provides messages and takes responses; when it can do
// neither, it waits on the call's own completion queue. So the callbacks of the
// public API run in this thread, and a slow callback delays only its own
// stream.
//
// At most one write and one read are under way at a time. The next read is
// started before a response is taken, so that one response arrives while
// another is used. Later responses wait in gRPC's flow control, so that memory
// stays bounded if the caller is slow.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"

namespace posenc {

struct StreamEnd {
  // The first error of a callback, or DEADLINE_EXCEEDED if the stream stood
  // still for too long. These errors cancel the call.
  absl::Status local;
  bool silent = false;  // the stream stood still; `local` says so
  grpc::Status status;  // of the call
};

// Runs a call to its end. `next` fills in the next message, and returns false
// after the last message. `take` gets every response. If nothing happens for
// `patience`, the stream is cancelled; if `patience` is infinite, only the
// call's deadline ends the stream.
StreamEnd RunBulkStream(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
    grpc::ClientContext* context, absl::Duration patience,
    const std::function<absl::StatusOr<bool>(grpc::ByteBuffer*)>& next,
    const std::function<absl::Status(const grpc::ByteBuffer&)>& take);

}  // namespace posenc
