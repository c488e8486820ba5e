#include "bias_matrix.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "calls.h"

namespace posenc {
namespace {

absl::Status Misfit(const v1::BuildBiasResponse& tile) {
  return absl::InternalError(absl::StrCat(
      "the bias came with a tile at query ", tile.query_start(), ", key ",
      tile.key_start(), " that does not fit the request or the first tile"));
}

}  // namespace

absl::Status BiasMatrix::Add(const v1::BuildBiasResponse& response,
                             const ReceivedMessage& message) {
  const auto& shape = response.tile().shape();
  if (shape.size() != 3 || shape[0] < 1 || shape[1] < 1 || shape[2] < 1) {
    return Misfit(response);
  }
  const std::int64_t heads = shape[0], queries = shape[1], keys = shape[2];
  const std::int64_t rows = request_.query_length();
  const std::int64_t columns = request_.key_length();
  const std::int64_t row = next_row_, column = next_column_;
  if (response.query_start() != request_.query_start() + row ||
      response.key_start() != request_.key_start() + column ||
      queries > rows - row || keys > columns - column ||
      (column > 0 && queries != band_rows_)) {
    return Misfit(response);
  }
  // The size of an element follows from the bytes, by division: a wrong shape's
  // product may overflow.
  const auto bytes = static_cast<std::int64_t>(message.bytes(0).size);
  const std::int64_t head_bytes = bytes / heads;
  const std::int64_t element_bytes = head_bytes / queries / keys;
  if (element_bytes < 1 || element_bytes > 8 || bytes % heads != 0 ||
      head_bytes != element_bytes * queries * keys) {
    return Misfit(response);
  }
  if (data_ == nullptr) {
    dtype_ = response.tile().dtype();
    heads_ = heads;
    element_bytes_ = element_bytes;
    // No memory has 2^62 bytes.
    if (columns > (std::int64_t{1} << 62) / element_bytes / heads / rows) {
      return absl::ResourceExhaustedError(
          absl::StrCat("bias: ", heads, " x ", rows, " x ", columns,
                       " elements; take it tile by tile"));
    }
    const std::int64_t size = heads * rows * columns * element_bytes;
    const absl::Status room = CheckMemory(size);
    if (!room.ok()) return room;
    data_ = AlignedMemory(static_cast<std::size_t>(size));
  } else if (response.tile().dtype() != dtype_ || heads != heads_ ||
             element_bytes != element_bytes_) {
    return Misfit(response);
  }
  TensorReader reader(message.bytes(0));
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < queries; ++i) {
      reader.Read(static_cast<std::size_t>(keys * element_bytes),
                  data_.get() + ((h * rows + row + i) * columns + column) *
                                    element_bytes);
    }
  }
  band_rows_ = queries;
  next_column_ = column + keys;
  if (next_column_ == columns) {
    next_row_ = row + queries;
    next_column_ = 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorResult> BiasMatrix::Take() {
  TensorResult result;
  result.tensor.shape = {heads_, request_.query_length(),
                         request_.key_length()};
  // Trained tables may have no heads: such a bias comes without any tile.
  if (data_ == nullptr) return result;
  if (next_row_ != request_.query_length()) {
    return absl::InternalError("the bias came with tiles missing or twice");
  }
  result.tensor.dtype = dtype_;
  result.tensor.bytes = absl::MakeConstSpan(
      data_.get(),
      static_cast<std::size_t>(heads_ * request_.query_length() *
                               request_.key_length() * element_bytes_));
  result.owner = std::move(data_);
  return result;
}

}  // namespace posenc
