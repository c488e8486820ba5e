// Rotates the tensors of unary calls and streams. A unary call has whole
// tensors. A stream has bytes that the client may cut anywhere, and RowStream
// finds the rows in them.
//
//   messages   |......q......|......q......|..q....k...|
//   rows       |--0--|--1--|-:-2--|--3--|...            : a cut row
//   responses  |  0, 1     |  2   |  3 ...
//
// Whole rows of a message are rotated without a copy. The bytes of a cut row
// are first copied together, and the row gets a response of its own.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/runtime/pieces.h"
#include "core/runtime/row_map.h"
#include "server/call/computation.h"
#include "server/call/pending_response.h"
#include "server/convert/tensor.h"
#include "server/memory/request_message.h"
#include "server/methods/methods.h"

namespace posenc::server {

struct RotatedTensor {
  int field;  // field number in the response
  InputTensor tensor;
  std::unique_ptr<const core::RowMap> map;
};

// The tensors that a call rotates. A stream sends their bytes in this order.
using Rotation = absl::InlinedVector<RotatedTensor, 2>;

// Returns the answer with the rotated tensors.
inline absl::StatusOr<TensorAnswer> AnswerRotation(
    absl::StatusOr<Rotation> rotation, const MethodContext& context) {
  if (!rotation.ok()) return rotation.status();
  TensorAnswer answer;
  absl::InlinedVector<RowMapComputation::Output, 2> maps;
  for (auto& [field, tensor, map] : *rotation) {
    answer.outputs.push_back(
        {field, tensor.view.dtype, tensor.view.shape, tensor.form});
    maps.push_back({std::move(map), std::move(tensor)});
  }
  answer.computation = std::make_unique<RowMapComputation>(
      std::move(maps), context.borrowed.tile_bytes());
  return answer;
}

class RowStream {
 public:
  explicit RowStream(Rotation rotation);

  // Returns an upper bound on the kept memory: the bytes of a cut row and the
  // bytes of the maps.
  std::size_t kept_bytes() const;

  // Adds the next bytes of the tensors. All bytes together must not exceed the
  // tensors' size. All whole rows of the earlier bytes must have been answered.
  // `message` is the message with the bytes if they may be overwritten;
  // otherwise it is null. `owner` keeps the bytes and the message alive.
  void Add(core::ConstPieces bytes, const RequestMessage* message,
           std::shared_ptr<const void> owner);

  // Returns whether there are whole rows without an answer.
  bool HasNext() const { return left() > 0; }
  // Returns the response with the next rows. Its `data` has at most
  // kStreamChunkBytes, or one row if a row is larger. Requires HasNext().
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      std::int64_t max_response_bytes);

 private:
  struct Tensor {
    core::Dtype dtype;
    std::shared_ptr<const core::RowMap> map;
    std::int64_t done = 0;  // rows that are answered
  };

  std::size_t left() const { return bytes_.size() - used_; }
  // Returns the tensor to which the next byte belongs.
  Tensor& Current();
  // Moves the remaining bytes into cut_, unless they complete a row.
  void KeepCut();

  absl::InlinedVector<Tensor, 2> tensors_;
  std::size_t current_ = 0;
  std::string cut_;  // the first bytes of the next row
  core::ConstPieces bytes_;
  std::size_t used_ = 0;
  const RequestMessage* message_ = nullptr;
  std::shared_ptr<const void> owner_;
};

}  // namespace posenc::server
