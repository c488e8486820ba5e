// A response whose tensors are computed in the memory that gRPC sends them
// from: over the request's own bytes if nobody else reads them, else into
// buffers of their own.
//
//   fields | header tensor | header tensor      one message, several slices
//
// `fields` are the response's small fields, serialized; a header is the
// protobuf framing in front of a tensor's bytes (posenc/wire/frame.h). Nothing
// is copied: gRPC writes the slices to the socket one after the other. A small
// response is put together in one slice, because that costs less than what gRPC
// does for each slice.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/memory/request_message.h"
#include "server/rpc/computation.h"
#include "server/rpc/handler.h"

namespace posenc::server {

// request: what the answer borrows; kept until the response is finished.
// message: the message whose slices the computation's inputs point into; null
// if they point elsewhere.
// answer: is moved from. By reference, because each move of it on the way here
// would take two hundred instructions.
// limit: bytes of the largest response (kMessageTooLarge).
absl::StatusOr<std::unique_ptr<PendingResponse>> MakeTensorResponse(
    TensorAnswer&& answer, std::shared_ptr<const void> request,
    const RequestMessage* message, std::string fields, std::int64_t limit);

// A response whose bytes are there already.
std::unique_ptr<PendingResponse> MakeReadyResponse(const std::string& bytes);

}  // namespace posenc::server
