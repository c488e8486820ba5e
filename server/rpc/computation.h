// What a checked request answers: the tensors that the response will have, and
// the computation that fills them tile by tile.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/runtime/pieces.h"
#include "core/runtime/row_map.h"
#include "core/tensor.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// What a message of a stream should hold: enough to hide a round trip, little
// enough to hold many of. gRPC's clients refuse messages over 4 MiB unless told
// otherwise, and tensors have an envelope of positions and framing; 64 KiB is
// room for it.
inline constexpr std::int64_t kStreamChunkBytes =
    (std::int64_t{4} << 20) - (std::int64_t{64} << 10);

// Not OK once the caller no longer waits. Computations ask it between pieces of
// work that take about a millisecond.
using StopCheck = absl::FunctionRef<absl::Status()>;

// Memory of the caller's that a tensor is computed into, so that the response
// only names it.
struct OutputPlace {
  char* data = nullptr;  // null if the tensor has no elements
  // The place is that of the tensor's input (see OutputBuffer).
  bool holds_input = false;
  std::string name;  // of the file, as in SharedMemory
  std::int64_t offset = 0;
};

// A tensor that a response will have.
struct OutputTensor {
  int field;  // its number in the response
  core::Dtype dtype;
  core::Shape shape;
  TensorForm form = TensorForm::kData;
  // Number of the message field that holds `field`; 0 if the response itself
  // does.
  int within = 0;
  // The field is bytes, not a Tensor: the elements alone.
  bool bare = false;
  // Null: it is computed in the response.
  std::shared_ptr<const OutputPlace> place = nullptr;
};
using OutputTensors = absl::InlinedVector<OutputTensor, 2>;

// Bytes of one tensor.
std::size_t ByteCount(const OutputTensor& output);

// Memory that an output is computed into.
struct OutputBuffer {
  core::Pieces bytes;
  // The buffer is the memory of the output's input: each row is overwritten by
  // its own result. Only if Computation::InputInPlace() allows it.
  bool holds_input = false;

  // The first byte. Null for a tensor without elements.
  char* data() const { return bytes.From(0).data(); }
};

// Fills the outputs of one response. Compute() is called once for each tile, in
// any order, at once on several threads.
class Computation {
 public:
  virtual ~Computation() = default;

  std::int64_t tiles() const { return tiles_; }

  // Bytes that it reads, to judge where it should run.
  virtual std::size_t input_bytes() const { return 0; }

  // The bytes of the request over which output `i` may be written, or null if
  // it needs memory of its own.
  virtual const core::ConstPieces* InputInPlace(std::size_t /*i*/) const {
    return nullptr;
  }

  // Whether buffers must be in one piece and aligned to 64 bytes. If not, they
  // may have any alignment.
  virtual bool needs_aligned_buffers() const { return true; }

  virtual absl::Status Compute(std::int64_t tile,
                               absl::Span<const OutputBuffer> outputs,
                               StopCheck stop) const = 0;

 protected:
  explicit Computation(std::int64_t tiles) : tiles_(tiles) {}

 private:
  const std::int64_t tiles_;
};

// Each output's rows are made from the rows of a tensor of the request, by a
// RowMap: rotations, additions.
class RowMapComputation final : public Computation {
 public:
  struct Output {
    std::unique_ptr<const core::RowMap> map;
    core::ConstPieces input;
  };

  // owner: what the maps and inputs borrow from, besides the request.
  // tile_bytes: those that a tile reads and writes.
  RowMapComputation(absl::InlinedVector<Output, 2> outputs,
                    std::shared_ptr<const void> owner, std::size_t tile_bytes);

  std::size_t input_bytes() const override;
  const core::ConstPieces* InputInPlace(std::size_t i) const override;
  bool needs_aligned_buffers() const override { return false; }
  absl::Status Compute(std::int64_t tile,
                       absl::Span<const OutputBuffer> outputs,
                       StopCheck stop) const override;

 private:
  static std::int64_t AllTiles(absl::Span<const Output> outputs,
                               std::size_t tile_bytes);

  const std::size_t tile_bytes_;
  const absl::InlinedVector<Output, 2> outputs_;
  const std::shared_ptr<const void> owner_;
};

// Tiles that a function computes.
class TileFunction final : public Computation {
 public:
  using Function = std::function<absl::Status(
      std::int64_t tile, absl::Span<const OutputBuffer> outputs,
      StopCheck stop)>;

  // input_bytes: as of Computation.
  TileFunction(std::int64_t tiles, Function compute,
               std::size_t input_bytes = 0)
      : Computation(tiles),
        compute_(std::move(compute)),
        input_bytes_(input_bytes) {}

  std::size_t input_bytes() const override { return input_bytes_; }
  absl::Status Compute(std::int64_t tile,
                       absl::Span<const OutputBuffer> outputs,
                       StopCheck stop) const override {
    return compute_(tile, outputs, stop);
  }

 private:
  const Function compute_;
  const std::size_t input_bytes_;
};

// Everything about it has been validated. Borrows the request.
struct TensorAnswer {
  OutputTensors outputs;
  std::unique_ptr<const Computation> computation;
  // Places in `outputs` of those that the response has, in its order; unset:
  // all, as they are. The others are computed and dropped.
  std::optional<absl::InlinedVector<std::size_t, 2>> sent;
  // Bytes of shared memory that are read and written, to be claimed.
  std::int64_t shared_bytes = 0;
  // The response's small fields, if the computation makes them; null: they are
  // known before.
  std::shared_ptr<const std::string> fields;
  // Called before each tile, perhaps on several threads: an error ends the
  // computation. Empty: nothing can.
  std::function<absl::Status()> check;
  // Called once everything has been computed: an error if it does not hold, as
  // shared memory was cut short. Empty: it holds.
  std::function<absl::Status()> complete;
};

}  // namespace posenc::server
