// A response before it is sent. It has small fields and tensors. A computation
// writes the tensors into the memory that gRPC sends.
//
//   fields | header tensor | header tensor      one message, several slices
//
// `fields` are serialized small fields. A header is the protobuf framing before
// a tensor's bytes (posenc/wire/frame.h). A tensor is written over the
// request's own bytes if they have no other reader, into shared memory that the
// caller has named, or into a separate buffer. A small response is one slice.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "server/call/computation.h"
#include "server/memory/request_message.h"
#include "server/memory/response_buffers.h"
#include "server/memory/writable_slice.h"

namespace posenc::server {

// First call Allocate() once. Then call Compute() once for each tile of [0,
// tiles()), in any order, on several threads at the same time. Then call
// Finish() once, unless a tile failed.
class PendingResponse final {
 public:
  // Makes a response without tensors.
  explicit PendingResponse(std::string fields)
      : fields_(std::move(fields)), bytes_(fields_.size()) {
    answer_.sent.emplace();
  }

  // `answer` is moved from. It is a reference because each move takes two
  // hundred instructions. `request` owns the data that the answer borrows, and
  // is kept until the end. `message` holds the slices that contain the
  // computation's inputs; it is null if the inputs are elsewhere. `limit` is
  // the size of the largest response, for fields that the computation makes.
  PendingResponse(TensorAnswer&& answer, std::shared_ptr<const void> request,
                  const RequestMessage* message, std::string fields,
                  std::int64_t limit);

  // Returns the size of the message without the fields that the computation
  // makes.
  absl::uint128 bytes() const { return bytes_; }

  std::int64_t tiles() const {
    return answer_.computation == nullptr ? 0 : answer_.computation->tiles();
  }
  // Returns Computation::work() plus the size of the outputs in bytes. This
  // measure decides whether a loop or the pool computes.
  std::size_t work_bytes() const { return work_bytes_; }

  // Returns the number of bytes that Allocate() will need: memory in addition
  // to the request's bytes, and shared memory. The caller must claim these
  // bytes first. If Allocate() has failed, returns the number of claimed bytes
  // that were not used, and the caller must release them.
  std::int64_t bytes_to_claim() const { return bytes_to_claim_; }

  absl::Status Allocate(ResponseBuffers* buffers);
  absl::Status Compute(std::int64_t tile, StopCheck stop) const;
  absl::Status Finish(grpc::ByteBuffer* response);

  // Returns the number of unclaimed bytes in the finished response. Their
  // number was not known before the computation.
  std::int64_t unclaimed_bytes() const { return unclaimed_bytes_; }

 private:
  // Most responses have one or two tensors, each in one or two slices.
  template <typename T>
  using Few = absl::InlinedVector<T, 2>;

  // Returns whether the output is computed directly in the caller's memory. If
  // that memory does not have the alignment that the computation needs, the
  // output is computed in a buffer, and copied to the caller's memory at the
  // end.
  bool IsComputedInPlace(std::size_t i) const;
  // Returns the bytes of the message that the output overwrites; null if the
  // output gets separate memory.
  const core::ConstPieces* InputInPlace(std::size_t i) const;
  void PutTogether();
  absl::Status AllocateOutput(std::size_t i, ResponseBuffers* buffers);
  std::vector<grpc::Slice> InOrder() const;

  TensorAnswer answer_;
  std::shared_ptr<const void> request_;
  const RequestMessage* message_ = nullptr;
  std::string fields_;
  const std::int64_t limit_ = 0;
  absl::uint128 bytes_ = 0;
  bool together_ = false;  // the message is one slice
  std::size_t work_bytes_ = 0;
  std::int64_t bytes_to_claim_ = 0, unclaimed_bytes_ = 0;
  std::shared_ptr<void> shared_;  // the claim for shared memory
  std::optional<WritableSlice> one_slice_;
  // Each list has one entry for each output. `buffers_` points into the slices,
  // so the slices must not move after Allocate().
  Few<RequestMessage::WritableSlices> slices_;
  Few<OutputBuffer> buffers_;
};

// Makes the response of an answer; the constructor explains the arguments.
// Returns kMessageTooLarge if the response is larger than `limit`.
absl::StatusOr<std::unique_ptr<PendingResponse>> MakeResponse(
    TensorAnswer&& answer, std::shared_ptr<const void> request,
    const RequestMessage* message, std::string fields, std::int64_t limit);

}  // namespace posenc::server
