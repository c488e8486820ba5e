#include "bias_matrix.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace posenc {
namespace {

absl::Status Misfit(const BiasTile& tile) {
  return absl::InternalError(absl::StrCat(
      "the bias came with a tile at query ", tile.query_start, ", key ",
      tile.key_start, " that does not fit the request or the first tile"));
}

}  // namespace

// A server's slip must not write elsewhere.
absl::Status BiasMatrix::Add(const BiasTile& tile) {
  const TensorView& view = tile.tensor;
  if (view.shape.size() != 3 || view.shape[0] < 1 || view.shape[1] < 1 ||
      view.shape[2] < 1) {
    return Misfit(tile);
  }
  const std::int64_t queries = view.shape[1], keys = view.shape[2];
  const std::int64_t rows = request_.query_length();
  const std::int64_t columns = request_.key_length();
  const std::int64_t row = tile.query_start - request_.query_start();
  const std::int64_t column = tile.key_start - request_.key_start();
  if (row < 0 || column < 0 || queries > rows - row ||
      keys > columns - column) {
    return Misfit(tile);
  }
  // By division: a shape that the bytes do not have may overflow.
  const std::int64_t bytes = static_cast<std::int64_t>(view.bytes.size());
  const std::int64_t head_bytes = bytes / view.shape[0];
  const std::int64_t size = head_bytes / queries / keys;
  if (size < 1 || size > 8 || bytes % view.shape[0] != 0 ||
      head_bytes != size * queries * keys) {
    return Misfit(tile);
  }
  if (data_ == nullptr) {
    dtype_ = view.dtype;
    heads_ = view.shape[0];
    size_ = size;
    // [heads, rows, columns] in bytes; 2^62 is beyond any memory.
    if (columns > (std::int64_t{1} << 62) / size / heads_ / rows) {
      return absl::ResourceExhaustedError(
          absl::StrCat("bias: ", heads_, " x ", rows, " x ", columns,
                       " elements; take it tile by tile"));
    }
    data_ = std::make_shared<std::string>(
        static_cast<std::size_t>(heads_ * rows * columns * size), '\0');
  } else if (view.dtype != dtype_ || view.shape[0] != heads_ || size != size_) {
    return Misfit(tile);
  }
  const char* from = view.bytes.data();
  for (std::int64_t h = 0; h < heads_; ++h) {
    for (std::int64_t i = 0; i < queries; ++i) {
      char* const to =
          &(*data_)[((h * rows + row + i) * columns + column) * size];
      std::copy_n(from, keys * size, to);
      from += keys * size;
    }
  }
  elements_ += heads_ * queries * keys;
  return absl::OkStatus();
}

absl::StatusOr<TensorResult> BiasMatrix::Take() {
  TensorResult result;
  result.tensor.shape = {heads_, request_.query_length(),
                         request_.key_length()};
  if (elements_ != heads_ * request_.query_length() * request_.key_length()) {
    return absl::InternalError("the bias came with tiles missing or twice");
  }
  if (data_ != nullptr) {
    result.tensor.dtype = dtype_;
    result.tensor.bytes = absl::MakeConstSpan(data_->data(), data_->size());
    result.owner = std::move(data_);
  }
  return result;
}

}  // namespace posenc
