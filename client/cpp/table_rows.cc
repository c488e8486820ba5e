#include "table_rows.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "calls.h"
#include "error_fields.h"
#include "posenc/wire/frame.h"

namespace posenc {
namespace {

absl::Status Misfit(std::int64_t first_row) {
  return absl::InternalError(
      absl::StrCat("the table came with rows at ", first_row,
                   " that do not fit the request or the rows before"));
}

std::int64_t LastExtent(const v1::Tensor& tensor) {
  return tensor.shape_size() == 0 ? 0 : *tensor.shape().rbegin();
}

// Returns the elements of a row of one tensor; 0 if only the server knows.
std::int64_t TableWidth(const v1::BuildTableRequest& request) {
  const v1::AbsoluteEncoding& absolute = request.absolute();
  switch (absolute.encoding_case()) {
    case v1::AbsoluteEncoding::kSinusoidal:
      return absolute.sinusoidal().dim();
    case v1::AbsoluteEncoding::kLearned:
      return LastExtent(absolute.learned().table());
    case v1::AbsoluteEncoding::kSincosGrid:
      return absolute.sincos_grid().dim();
    case v1::AbsoluteEncoding::kTimestep:
      return absolute.timestep().dim();
    case v1::AbsoluteEncoding::kFourierFeatures:
      return 2 * LastExtent(absolute.fourier_features().frequencies());
    case v1::AbsoluteEncoding::ENCODING_NOT_SET:
      break;
  }
  const std::int64_t width = request.rope().spec().rotary_dim();
  const bool half = request.layout() == v1::TABLE_LAYOUT_UNSPECIFIED ||
                    request.layout() == v1::TABLE_LAYOUT_HALF;
  return half ? width / 2 : width;
}

}  // namespace

std::int64_t RowsOf(const v1::BuildTableRequest& request) {
  const v1::Positions& positions = request.positions();
  // The last extent of ids counts tokens; the others are axes or sequences.
  if (positions.has_ids() && positions.ids().shape_size() > 0) {
    return positions.ids().shape(positions.ids().shape_size() - 1);
  }
  if (positions.has_packed() && positions.packed().cu_seqlens_size() > 0) {
    return *positions.packed().cu_seqlens().rbegin();
  }
  if (!request.absolute().has_sincos_grid()) return request.rows();
  const v1::SincosGrid& grid = request.absolute().sincos_grid();
  // A grid has rows for special tokens, then a row for every cell.
  std::int64_t cells = 1;
  for (const std::int64_t extent : grid.extents()) {
    if (extent < 0 ||
        (extent > 0 &&
         cells > std::numeric_limits<std::int32_t>::max() / extent)) {
      return 0;
    }
    cells *= extent;
  }
  return cells + grid.leading_zero_rows();
}

std::int64_t TableBytes(const v1::BuildTableRequest& request) {
  const v1::RopeSpec& spec = request.rope().spec();
  const std::int64_t heads = spec.explicit_frequencies().heads();
  const std::int64_t element = static_cast<std::int64_t>(wire::ElementBytes(
      request.dtype() == v1::DTYPE_UNSPECIFIED ? v1::DTYPE_FLOAT32
                                               : request.dtype()));
  std::int64_t bytes = 1;
  for (const std::int64_t extent : {heads == 0 ? 1 : heads, RowsOf(request),
                                    TableWidth(request), element}) {
    // No memory has 2^62 bytes.
    if (extent <= 0 || bytes > (std::int64_t{1} << 62) / extent) return -1;
    bytes *= extent;
  }
  return bytes;
}

TableRows::TableRows(const v1::BuildTableRequest& request,
                     absl::Span<const Output> into)
    : rows_(RowsOf(request)),
      by_head_(request.rope().spec().explicit_frequencies().heads() > 0),
      into_(into.begin(), into.end()) {}

absl::Status TableRows::AddTensor(std::size_t index, std::int64_t first_row,
                                  const ReceivedMessage& message,
                                  std::int64_t* rows) {
  const v1::Tensor* const part = message.tensor(index);
  absl::optional<Tensor>& whole = tensors_[index];
  if (part == nullptr) {
    return whole ? Misfit(first_row) : absl::OkStatus();
  }
  const absl::Status answer = CheckAnswer(message, index, absl::nullopt);
  if (!answer.ok()) return answer;
  const int axis = by_head_ ? 1 : 0;
  if (part->shape_size() < axis + 2) return Misfit(first_row);
  // Sizes follow from the bytes, by division: a wrong shape's product may
  // overflow.
  const std::int64_t heads = by_head_ ? part->shape(0) : 1;
  *rows = part->shape(axis);
  const auto bytes = static_cast<std::int64_t>(message.bytes(index).size);
  if (heads < 1 || *rows < 1 || *rows > rows_ - first_row ||
      bytes % heads != 0 || bytes / heads % *rows != 0) {
    return Misfit(first_row);
  }
  const std::int64_t row_bytes = bytes / heads / *rows;
  if (!whole) {
    // A tensor that the first message lacks must not come later.
    if (first_row != 0) return Misfit(first_row);
    // No memory has 2^62 bytes.
    if (row_bytes > 0 && rows_ > (std::int64_t{1} << 62) / row_bytes / heads) {
      return Misfit(first_row);
    }
    whole.emplace();
    whole->heads = heads;
    whole->row_bytes = row_bytes;
    const auto size = static_cast<std::size_t>(heads * rows_ * row_bytes);
    const Output& into = into_[index];
    if (into && into->size() != size) {
      return WrongArgument(
          message.output_name(index),
          absl::StrCat("has ", into->size(), " bytes; the result has ", size));
    }
    if (!into) {
      // Cosines and sines have equal sizes.
      const bool pair = index < 2;
      const absl::Status room =
          CheckMemory(static_cast<std::int64_t>(pair ? 2 * size : size));
      if (!room.ok()) return room;
      whole->memory = AlignedMemory(size);
    }
    whole->data = into ? into->data() : whole->memory.get();
    whole->view.dtype = part->dtype();
    whole->view.shape.assign(part->shape().begin(), part->shape().end());
    whole->view.shape[axis] = rows_;
    whole->view.bytes = absl::MakeConstSpan(whole->data, size);
  } else if (heads != whole->heads || row_bytes != whole->row_bytes ||
             part->dtype() != whole->view.dtype) {
    return Misfit(first_row);
  }
  // The message has the heads one after the other, each with only these rows.
  TensorReader reader(message.bytes(index));
  for (std::int64_t h = 0; h < heads; ++h) {
    reader.Read(static_cast<std::size_t>(*rows * row_bytes),
                whole->data + (h * rows_ + first_row) * row_bytes);
  }
  return absl::OkStatus();
}

absl::Status TableRows::Add(std::int64_t first_row, double amplitude,
                            const ReceivedMessage& message) {
  if (first_row != next_row_) return Misfit(first_row);
  amplitude_ = amplitude;
  // The tensors among cos, sin and table must have the same rows.
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t before = rows;
    const absl::Status status = AddTensor(i, first_row, message, &rows);
    if (!status.ok()) return status;
    if (before != 0 && before != rows) return Misfit(first_row);
  }
  next_row_ += rows;
  return absl::OkStatus();
}

std::int64_t TableRows::bytes_done() const {
  return rows_ == 0 ? 0 : bytes() / rows_ * next_row_;
}

std::int64_t TableRows::bytes() const {
  std::int64_t bytes = 0;
  for (const absl::optional<Tensor>& tensor : tensors_) {
    if (tensor) bytes += static_cast<std::int64_t>(tensor->view.bytes.size());
  }
  return bytes;
}

absl::StatusOr<BuildTableResult> TableRows::Take() {
  if (next_row_ != rows_) {
    return absl::InternalError(absl::StrCat("the table came with ", next_row_,
                                            " of ", rows_, " rows"));
  }
  BuildTableResult result;
  result.amplitude = amplitude_;
  // All tensors share one owner: a result is kept or dropped as a whole.
  auto memory = std::make_shared<std::vector<std::shared_ptr<char>>>();
  absl::optional<TensorView>* const views[3] = {&result.cos, &result.sin,
                                                &result.table};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!tensors_[i]) continue;
    *views[i] = std::move(tensors_[i]->view);
    memory->push_back(std::move(tensors_[i]->memory));
  }
  result.owner = std::move(memory);
  return result;
}

}  // namespace posenc
