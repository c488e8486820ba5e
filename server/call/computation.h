// The answer to a checked request: the tensors of the response, and the
// computation that fills them tile by tile.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/runtime/pieces.h"
#include "core/runtime/row_map.h"
#include "google/protobuf/message.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// Recommended size of a stream's messages: large enough to hide a round trip,
// and small enough that many messages fit in memory. gRPC's clients refuse
// messages over 4 MiB by default; 64 KiB are left for positions and framing.
inline constexpr std::int64_t kStreamChunkBytes =
    (std::int64_t{4} << 20) - (std::int64_t{64} << 10);

// Returns an error when the caller no longer waits. Computations call this
// function about once a millisecond.
using StopCheck = absl::FunctionRef<absl::Status()>;

// The caller's memory for a computed tensor. The response names this memory
// instead of containing the elements.
struct OutputPlace {
  char* data = nullptr;  // null if the tensor has no elements
  // Whether this memory also contains the tensor's input (see OutputBuffer).
  bool holds_input = false;
  std::string name;  // name of the file, as in SharedMemory
  std::int64_t offset = 0;
};

// A tensor of a response.
struct OutputTensor {
  int field;  // number of the field in the response
  core::Dtype dtype;
  core::Shape shape;
  TensorForm form = TensorForm::kData;
  // Number of the message field that contains `field`; 0 if no field contains
  // it.
  int within = 0;
  // Whether the field is of type bytes and contains only the elements.
  bool bare = false;
  // Null if the tensor is part of the response.
  std::shared_ptr<const OutputPlace> place = nullptr;
};
using OutputTensors = absl::InlinedVector<OutputTensor, 2>;

// Returns the size of a tensor in bytes.
std::size_t ByteCount(const OutputTensor& output);

// Memory for a computed output.
struct OutputBuffer {
  core::Pieces bytes;
  // Whether the buffer already contains the output's input. The result of each
  // row then overwrites this row. Requires Computation::InputInPlace().
  bool holds_input = false;

  // Returns a pointer to the first byte; null for a tensor without elements.
  char* data() const { return bytes.From(0).data(); }
};

// Fills the outputs of one response. Compute() is called once for each tile, in
// any order, on several threads at the same time.
class Computation {
 public:
  virtual ~Computation() = default;

  std::int64_t tiles() const { return tiles_; }

  // Returns a measure of the work without the storing of outputs: either the
  // number of bytes that are read, or the nanoseconds that the work takes. The
  // two are comparable, because a byte takes about a nanosecond. This measure
  // decides whether a loop or the pool computes.
  std::size_t work() const { return work_; }

  // Returns the bytes of the request that output `i` may overwrite; null if the
  // output needs separate memory.
  virtual const core::ConstPieces* InputInPlace(std::size_t /*i*/) const {
    return nullptr;
  }

  // Returns whether each buffer must be contiguous and aligned to 64 bytes. If
  // not, a buffer may consist of several pieces, with any alignment.
  virtual bool needs_aligned_buffers() const { return true; }

  virtual absl::Status Compute(std::int64_t tile,
                               absl::Span<const OutputBuffer> outputs,
                               StopCheck stop) const = 0;

 protected:
  Computation(std::int64_t tiles, std::size_t work)
      : tiles_(tiles), work_(work) {}

  std::int64_t tiles_;
  std::size_t work_;
};

// Computes each output's rows from the rows of a request's tensor with a
// RowMap, such as a rotation or an addition.
class RowMapComputation final : public Computation {
 public:
  struct Output {
    std::unique_ptr<const core::RowMap> map;
    InputTensor input;
  };

  // `tile_bytes` is the number of bytes that a tile reads and writes.
  RowMapComputation(absl::InlinedVector<Output, 2> outputs,
                    std::size_t tile_bytes);

  const core::ConstPieces* InputInPlace(std::size_t i) const override;
  bool needs_aligned_buffers() const override { return false; }
  absl::Status Compute(std::int64_t tile,
                       absl::Span<const OutputBuffer> outputs,
                       StopCheck stop) const override;

 private:
  const std::size_t tile_bytes_;
  const absl::InlinedVector<Output, 2> outputs_;
};

// Computes tiles with a function.
class TileFunction final : public Computation {
 public:
  using Function = std::function<absl::Status(
      std::int64_t tile, absl::Span<const OutputBuffer> outputs,
      StopCheck stop)>;

  TileFunction(std::int64_t tiles, Function compute, std::size_t work = 0)
      : Computation(tiles, work), compute_(std::move(compute)) {}

  absl::Status Compute(std::int64_t tile,
                       absl::Span<const OutputBuffer> outputs,
                       StopCheck stop) const override {
    return compute_(tile, outputs, stop);
  }

 private:
  const Function compute_;
};

// The answer to a completely validated request. Borrows the request's data.
struct TensorAnswer {
  OutputTensors outputs;
  std::unique_ptr<const Computation> computation;
  // Indexes in `outputs` of the tensors that the response contains, in the
  // response's order. Without a value, the response contains all tensors. Other
  // tensors are computed and dropped.
  std::optional<absl::InlinedVector<std::size_t, 2>> sent;
  // Number of bytes of shared memory that the call reads or writes. These bytes
  // are claimed like bytes of messages.
  std::int64_t shared_bytes = 0;
  // The response's fields that are not tensors; null if there are none. If the
  // answer has no tensors, the computation may change these fields, because
  // they are serialized later.
  std::shared_ptr<google::protobuf::Message> response;
  // Called before each tile, perhaps on several threads. May be empty.
  std::function<absl::Status()> check;
  // Called after the computation; returns an error if the result is not valid.
  // May be empty.
  std::function<absl::Status()> complete;
};

}  // namespace posenc::server
