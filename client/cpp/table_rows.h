// Puts the rows of a streamed table where they belong.

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

// Of the table that is asked for, as far as a request tells that the server
// accepts; 0 where it does not.
std::int64_t RowsOf(const v1::BuildTableRequest& request);

class TableRows {
 public:
  explicit TableRows(const v1::BuildTableRequest& request);

  // Of one message: cos, sin and table. INTERNAL where they do not fit.
  absl::Status Add(std::int64_t first_row, double amplitude,
                   const ReceivedMessage& message);

  std::int64_t bytes_done() const;
  std::int64_t bytes() const;

  // INTERNAL where rows are missing.
  absl::StatusOr<BuildTableResult> Take();

 private:
  struct Tensor {
    TensorView view;
    std::int64_t heads = 1;
    std::int64_t row_bytes = 0;
    std::shared_ptr<char> memory;
  };

  absl::Status AddTensor(std::size_t index, std::int64_t first_row,
                         const ReceivedMessage& message, std::int64_t* rows);

  const std::int64_t rows_;
  const bool by_head_;  // shapes start with the heads
  std::int64_t next_row_ = 0;
  double amplitude_ = 1;
  absl::optional<Tensor> tensors_[3];
};

}  // namespace posenc
