// Puts the tiles of a bias together in one tensor.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bulk_message.h"
#include "posenc/messages.h"

namespace posenc {

// The contract sends tiles in row-major order of the matrix. This class checks
// the order, and so that every element is written exactly once:
//
//            next_column_
//              v
//   +-----+-----+
//   |  0  |  1  |   tiles of one band of queries have equal heights
//   +-----+ - - +   <- next_row_
//   |  2  |  3  |   here tile 2 has come, and tile 3 must be the next
//   +-----+-----+
//
// The memory therefore need not be cleared first, and no server can make the
// client write outside of it.
class BiasMatrix {
 public:
  // Borrows the request.
  explicit BiasMatrix(const v1::BuildBiasRequest& request)
      : request_(request) {}

  // Copies the bytes of a tile, which is tensor 0 of `message`, to their place.
  // INTERNAL if this tile is not the next one of the request;
  // RESOURCE_EXHAUSTED if no memory could hold the matrix.
  absl::Status Add(const v1::BuildBiasResponse& response,
                   const ReceivedMessage& message);

  // INTERNAL if something is missing.
  absl::StatusOr<TensorResult> Take();

 private:
  const v1::BuildBiasRequest& request_;

  // Dtype, heads and element size of the first tile; other tiles must have the
  // same.
  v1::Dtype dtype_ = v1::DTYPE_UNSPECIFIED;
  std::int64_t heads_ = 0;
  std::int64_t element_bytes_ = 0;

  // Start of the next tile, counted from the request's first query and key, and
  // the number of queries of the tiles in its band.
  std::int64_t next_row_ = 0;
  std::int64_t next_column_ = 0;
  std::int64_t band_rows_ = 0;

  std::shared_ptr<char> data_;
};

}  // namespace posenc
