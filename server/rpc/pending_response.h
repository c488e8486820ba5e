// A response on its way: bytes that are there, and tensors that a computation
// fills in the memory that gRPC sends them from.
//
//   fields | header tensor | header tensor      one message, several slices
//
// `fields` are small fields, serialized; a header is the protobuf framing in
// front of a tensor's bytes (posenc/wire/frame.h). A tensor's memory is the
// request's own bytes if nobody else reads them, a place that the caller has
// named, or a buffer of its own. Nothing is copied: gRPC writes the slices to
// the socket one after the other. A small response is put together in one
// slice, because that costs less than what gRPC does for each slice.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "server/memory/request_message.h"
#include "server/memory/response_buffers.h"
#include "server/memory/writable_slice.h"
#include "server/rpc/computation.h"

namespace posenc::server {

// Its functions are called in this order: Allocate() once; Compute() once for
// each tile of [0, tiles()), in any order, at once on several threads; Finish()
// once, unless a tile failed.
class PendingResponse final {
 public:
  // A response without tensors.
  explicit PendingResponse(std::string fields) : fields_(std::move(fields)) {}

  // answer: is moved from. By reference, because each move of it on the way
  // here would take two hundred instructions.
  // request: what the answer borrows; kept until the response is destroyed.
  // message: the message whose slices the computation's inputs point into; null
  // if they point elsewhere.
  // one_slice: bytes of the whole response, if it is to be in one slice; else
  // 0. The answer's buffers then need no alignment.
  PendingResponse(TensorAnswer&& answer, std::shared_ptr<const void> request,
                  const RequestMessage* message, std::string fields,
                  std::size_t one_slice);

  std::int64_t tiles() const {
    return answer_.computation == nullptr ? 0 : answer_.computation->tiles();
  }
  // Bytes that are read and written, to judge where to run.
  std::size_t work_bytes() const { return work_bytes_; }

  // Bytes of memory that Allocate() will take beside the request's. They have
  // to be claimed before. If Allocate() fails, these are the bytes that it has
  // not taken, which the caller must release.
  std::int64_t bytes_to_claim() const { return bytes_to_claim_; }

  absl::Status Allocate(ResponseBuffers* buffers);
  absl::Status Compute(std::int64_t tile, StopCheck stop) const;
  absl::Status Finish(grpc::ByteBuffer* response);

  // Bytes of the finished response that nobody has claimed, as they were not
  // known before.
  std::int64_t unclaimed_bytes() const;

 private:
  // Most responses have one or two tensors, each in a slice or two.
  template <typename T>
  using Few = absl::InlinedVector<T, 2>;

  // Whether the output is computed where the caller wants it. If not, it is
  // copied there in the end: the caller may choose any alignment.
  bool IsComputedInPlace(std::size_t i) const;
  // The bytes of the message that the output is written over; null if it gets
  // memory of its own.
  const core::ConstPieces* InputInPlace(std::size_t i) const;
  void PutTogether();
  absl::Status AllocateOutput(std::size_t i, ResponseBuffers* buffers);
  std::vector<grpc::Slice> InOrder() const;

  TensorAnswer answer_;
  std::shared_ptr<const void> request_;
  const RequestMessage* message_ = nullptr;
  const std::string fields_;
  std::size_t one_slice_bytes_ = 0;
  std::size_t work_bytes_ = 0;
  std::int64_t bytes_to_claim_ = 0;
  std::unique_ptr<ResponseBuffers::Hold> shared_;  // the claim of that memory
  std::optional<WritableSlice> one_slice_;
  // One for each output. `buffers_` points into the slices, which therefore
  // stay where they are once Allocate() has run.
  Few<RequestMessage::WritableSlices> slices_;
  Few<OutputBuffer> buffers_;
};

// The response of an answer, as above. limit: bytes of the largest response
// (kMessageTooLarge).
absl::StatusOr<std::unique_ptr<PendingResponse>> MakeResponse(
    TensorAnswer&& answer, std::shared_ptr<const void> request,
    const RequestMessage* message, std::string fields, std::int64_t limit);

}  // namespace posenc::server
