// Puts a tensor together from the parts of a stream.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/cpp/tensors/bulk_message.h"
#include "posenc/messages.h"

namespace posenc {

// A tensor is seen as [heads, rows, columns]. One axis has the rows; the axes
// before it count as heads, and the axes after it as columns. A part has all
// heads of some rows and columns. Parts come in row-major order:
//
//            column
//              v
//   +-----+-----+
//   |  0  |  1  |   parts of one band have the same number of rows
//   +-----+ - - +   <- row
//   |  2  |  3  |   here part 2 has come, and part 3 must be the next
//   +-----+-----+
//
// This class checks the order. So every element is written exactly once. The
// memory need not be cleared first, and no server can make the client write
// outside of the memory.
class TensorParts {
 public:
  // `row_axis` is the index of the axis that has the rows. `into` is the
  // caller's memory; if it is unset, memory is allocated. `tensors` is the
  // number of tensors of this size that the machine's memory must hold.
  TensorParts(std::size_t row_axis, const Output& into, int tensors)
      : row_axis_(row_axis), into_(into), tensors_(tensors) {}

  bool begun() const { return data_ != nullptr; }

  // Sets the shape of the whole tensor and provides its memory, without writing
  // to it. Tensor `index` of a message is the first part. INTERNAL if the shape
  // is not valid, or was set before. INVALID_ARGUMENT if `into` has another
  // size than the whole tensor, RESOURCE_EXHAUSTED if the memory does not
  // suffice.
  absl::Status Begin(const ReceivedMessage& message, std::size_t index,
                     absl::Span<const std::int64_t> shape);

  // Copies tensor `index` of a message to its place, which begins at `row` and
  // `column`. INTERNAL if the part is not the next part of the whole tensor.
  absl::Status Add(std::int64_t row, std::int64_t column,
                   const ReceivedMessage& message, std::size_t index);

  // Number of received bytes. It equals view().bytes.size() if no bytes are
  // missing.
  std::size_t bytes_done() const { return bytes_done_; }

  // The whole tensor. owner() keeps its memory alive; null if the memory is the
  // caller's.
  const TensorView& view() const { return view_; }
  const std::shared_ptr<char>& owner() const { return owner_; }

 private:
  struct Extents {
    std::int64_t heads, rows, columns;
  };
  Extents ExtentsOf(absl::Span<const std::int64_t> shape) const;

  const std::size_t row_axis_;
  const Output into_;
  const int tensors_;
  TensorView view_;
  Extents whole_ = {};
  std::size_t element_bytes_ = 0;
  char* data_ = nullptr;
  std::shared_ptr<char> owner_;
  // The start of the next part, and the number of rows of the part before it.
  std::int64_t row_ = 0;
  std::int64_t column_ = 0;
  std::int64_t band_rows_ = 0;
  std::size_t bytes_done_ = 0;
};

}  // namespace posenc
