// Puts the rows of a streamed table together.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "bulk_message.h"
#include "posenc/messages.h"

namespace posenc {

// Returns the rows of the requested table; 0 if the request does not determine
// them. Correct for every request that the server accepts.
std::int64_t RowsOf(const v1::BuildTableRequest& request);

// Returns the bytes of each tensor of that table; -1 if only the server knows
// them, as for presets, configurations and requests that it refuses.
std::int64_t TableBytes(const v1::BuildTableRequest& request);

// Collects the messages of a BuildTableStream. Rows come in order, so that one
// number says which have come: the memory need not be cleared first. If
// frequencies differ by head, a table is [heads, rows, ...], and each message
// brings some rows of every head.
class TableRows {
 public:
  // `into` holds the caller's memory for cos, sin and table, in this order. For
  // a tensor without memory of the caller, that Output is nullopt, and memory
  // is allocated.
  TableRows(const v1::BuildTableRequest& request,
            absl::Span<const Output> into);

  // Adds the rows of one message, whose tensors are cos, sin and table. The
  // first message allocates the memory. INTERNAL if they are not the next rows
  // of the request; nothing is ever written outside of that memory.
  // INVALID_ARGUMENT if the caller's memory has another size.
  absl::Status Add(std::int64_t first_row, double amplitude,
                   const ReceivedMessage& message);

  // Bytes that have come, and bytes of the whole table; bytes() is 0 before the
  // first message.
  std::int64_t bytes_done() const;
  std::int64_t bytes() const;

  // INTERNAL if rows are missing.
  absl::StatusOr<BuildTableResult> Take();

 private:
  struct Tensor {
    TensorView view;  // of the whole table
    std::int64_t heads = 1;
    std::int64_t row_bytes = 0;  // of one head
    char* data = nullptr;
    std::shared_ptr<char> memory;  // null if it is the caller's
  };

  // Adds to cos (0), sin (1) or table (2); sets `rows` to the number added.
  absl::Status AddTensor(std::size_t index, std::int64_t first_row,
                         const ReceivedMessage& message, std::int64_t* rows);

  const std::int64_t rows_;
  const bool by_head_;  // shapes start with the heads
  const std::vector<Output> into_;
  std::int64_t next_row_ = 0;
  double amplitude_ = 1;
  absl::optional<Tensor> tensors_[3];
};

}  // namespace posenc
