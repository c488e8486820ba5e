#include "client/cpp/tensors/tensor_parts.h"

#include <algorithm>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/connection/calls.h"
#include "client/cpp/connection/error_fields.h"
#include "posenc/wire/frame.h"

namespace posenc {
namespace {

// Limit on a tensor's bytes: more than any machine's memory.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

bool AllPositive(absl::Span<const std::int64_t> shape) {
  return std::all_of(shape.begin(), shape.end(),
                     [](std::int64_t extent) { return extent > 0; });
}

}  // namespace

TensorParts::Extents TensorParts::ExtentsOf(
    absl::Span<const std::int64_t> shape) const {
  Extents extents = {1, 1, 1};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    (i < row_axis_    ? extents.heads
     : i == row_axis_ ? extents.rows
                      : extents.columns) *= shape[i];
  }
  return extents;
}

absl::Status TensorParts::Begin(const ReceivedMessage& message,
                                std::size_t index,
                                absl::Span<const std::int64_t> shape) {
  const v1::Tensor* const part = message.tensor(index);
  if (part == nullptr || begun() || shape.size() <= row_axis_ ||
      !AllPositive(shape)) {
    return absl::InternalError(absl::StrCat("the answer tells no shape of ",
                                            message.name(index), ", or two"));
  }
  element_bytes_ = wire::ElementBytes(part->dtype());
  const absl::uint128 bytes = wire::DataBytes(element_bytes_, shape);
  const absl::Status room = CheckMemory(static_cast<std::int64_t>(
      std::min(bytes * (into_ ? 0 : tensors_), absl::uint128(kMostBytes))));
  if (!room.ok()) return room;
  if (into_ && into_->size() != bytes) {
    return WrongArgument(
        message.output_name(index),
        absl::StrCat("has ", into_->size(), " bytes; the result has ",
                     absl::Uint128Low64(bytes)));
  }
  whole_ = ExtentsOf(shape);
  const auto size = static_cast<std::size_t>(bytes);
  if (!into_) owner_ = AlignedMemory(size);
  data_ = into_ ? into_->data() : owner_.get();
  view_.dtype = part->dtype();
  view_.shape.assign(shape.begin(), shape.end());
  view_.bytes = absl::MakeConstSpan(data_, size);
  return absl::OkStatus();
}

absl::Status TensorParts::Add(std::int64_t row, std::int64_t column,
                              const ReceivedMessage& message,
                              std::size_t index) {
  const absl::Status misfit = absl::InternalError(absl::StrCat(
      message.name(index), " came with a part at row ", row, ", column ",
      column, " that does not fit the whole or the part before"));
  const v1::Tensor* const tensor = message.tensor(index);
  if (tensor == nullptr || !begun() || row != row_ || column != column_) {
    return misfit;
  }
  const absl::Status answer = CheckAnswer(message, index, absl::nullopt);
  if (!answer.ok()) return answer;
  const absl::Span<const std::int64_t> shape(tensor->shape().data(),
                                             tensor->shape().size());
  // CheckAnswer() has compared the part's size with its shape, so no product of
  // extents overflows.
  if (tensor->dtype() != view_.dtype || tensor->has_shared() ||
      shape.size() != view_.shape.size() || !AllPositive(shape)) {
    return misfit;
  }
  const Extents part = ExtentsOf(shape);
  if (part.heads != whole_.heads || part.rows > whole_.rows - row ||
      part.columns > whole_.columns - column ||
      (column > 0 && part.rows != band_rows_)) {
    return misfit;
  }
  // Rows of the whole width are contiguous in memory.
  const std::int64_t together = part.columns == whole_.columns ? part.rows : 1;
  TensorReader reader(message.bytes(index));
  for (std::int64_t head = 0; head < part.heads; ++head) {
    for (std::int64_t i = 0; i < part.rows; i += together) {
      const std::int64_t element =
          (head * whole_.rows + row + i) * whole_.columns + column;
      reader.Read(
          static_cast<std::size_t>(together * part.columns) * element_bytes_,
          data_ + static_cast<std::size_t>(element) * element_bytes_);
    }
  }
  bytes_done_ += message.bytes(index).size;
  band_rows_ = part.rows;
  column_ += part.columns;
  if (column_ == whole_.columns) {
    row_ += part.rows;
    column_ = 0;
  }
  return absl::OkStatus();
}

}  // namespace posenc
