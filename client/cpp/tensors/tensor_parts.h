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

// A tensor is [heads, rows, columns]: the axes before that of the rows are
// heads, and those after it are columns. A part has every head of some rows and
// columns, and parts come in row-major order:
//
//            column
//              v
//   +-----+-----+
//   |  0  |  1  |   parts of one band have equal rows
//   +-----+ - - +   <- row
//   |  2  |  3  |   here part 2 has come, and part 3 must be the next
//   +-----+-----+
//
// This class checks the order. So every element is written exactly once: the
// memory need not be cleared first, and no server can make the client write
// outside of it.
class TensorParts {
 public:
  // row_axis: the number of axes before that of the rows.
  explicit TensorParts(std::size_t row_axis) : row_axis_(row_axis) {}

  // Sets the shape of the whole, and the dtype: that of tensor `index` of the
  // first message. into: the caller's memory; unset: allocates it. INTERNAL if
  // no tensor has this shape, INVALID_ARGUMENT if `into` has another size,
  // RESOURCE_EXHAUSTED if the machine has less memory than `tensors` of this
  // size.
  absl::Status Begin(const ReceivedMessage& message, std::size_t index,
                     absl::Span<const std::int64_t> shape, const Output& into,
                     int tensors);
  bool begun() const { return data_ != nullptr; }

  // Copies tensor `index` of a message to its place. INTERNAL if it is not the
  // next part of the whole.
  absl::Status Add(std::int64_t row, std::int64_t column,
                   const ReceivedMessage& message, std::size_t index);

  // Number of received bytes; view().bytes.size() if all were received.
  std::size_t bytes_done() const { return bytes_done_; }

  // The whole. `owner` keeps it alive; null if it is the caller's memory.
  const TensorView& view() const { return view_; }
  const std::shared_ptr<char>& owner() const { return owner_; }

 private:
  struct Extents {
    std::int64_t heads, rows, columns;
  };
  Extents ExtentsOf(absl::Span<const std::int64_t> shape) const;

  const std::size_t row_axis_;
  TensorView view_;
  Extents whole_ = {};
  std::size_t element_bytes_ = 0;
  char* data_ = nullptr;
  std::shared_ptr<char> owner_;
  // The start of the next part, and the rows of the parts in its band.
  std::int64_t row_ = 0;
  std::int64_t column_ = 0;
  std::int64_t band_rows_ = 0;
  std::size_t bytes_done_ = 0;
};

}  // namespace posenc
