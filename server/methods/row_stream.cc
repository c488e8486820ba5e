#include "server/methods/row_stream.h"

#include <algorithm>
#include <utility>

#include "server/call/computation.h"
#include "server/convert/tensor.h"

namespace posenc::server {
namespace {

// Number of the field `data` in the streams' responses, and the largest size of
// the field's framing.
constexpr int kDataField = 15;
constexpr std::int64_t kFraming = 6;

}  // namespace

RowStream::RowStream(Rotation rotation) {
  for (RotatedTensor& rotated : rotation) {
    tensors_.push_back({rotated.tensor.view.dtype, std::move(rotated.map), 0});
  }
}

std::size_t RowStream::kept_bytes() const {
  std::size_t cut = 0, kept = 0;
  for (const Tensor& tensor : tensors_) {
    if (tensor.map->rows() > 0) cut = std::max(cut, tensor.map->in_bytes());
    kept += tensor.map->kept_bytes();
  }
  return cut + kept;
}

void RowStream::Add(core::ConstPieces bytes, const RequestMessage* message,
                    std::shared_ptr<const void> owner) {
  bytes_ = std::move(bytes);
  used_ = 0;
  message_ = message;
  owner_ = std::move(owner);
  KeepCut();
}

RowStream::Tensor& RowStream::Current() {
  while (tensors_[current_].done == tensors_[current_].map->rows()) ++current_;
  return tensors_[current_];
}

void RowStream::KeepCut() {
  if (left() > 0 && cut_.size() + left() < Current().map->in_bytes()) {
    const std::size_t old = cut_.size();
    cut_.reserve(Current().map->in_bytes());
    cut_.resize(old + left());
    bytes_.Read(used_, left(), cut_.data() + old);
    used_ = bytes_.size();
  }
  if (left() == 0) owner_ = nullptr;
}

absl::StatusOr<std::unique_ptr<PendingResponse>> RowStream::Next(
    std::int64_t max_response_bytes) {
  Tensor& tensor = Current();
  const std::size_t row = tensor.map->in_bytes();
  core::ConstPieces input;
  std::int64_t rows = 1;
  const RequestMessage* message = message_;
  std::shared_ptr<const void> owner = owner_;
  if (cut_.empty()) {
    const auto most = static_cast<std::size_t>(
        std::min(kStreamChunkBytes, max_response_bytes - kFraming));
    rows = std::min(
        tensor.map->rows() - tensor.done,
        static_cast<std::int64_t>(std::min(left(), std::max(most, row)) / row));
    const std::size_t bytes = static_cast<std::size_t>(rows) * row;
    input = bytes_.Part(used_, bytes);
    used_ += bytes;
  } else {
    const std::size_t rest = row - cut_.size();
    auto whole = std::make_shared<std::string>(std::move(cut_));
    cut_.clear();
    whole->resize(row);
    bytes_.Read(used_, rest, whole->data() + row - rest);
    used_ += rest;
    input = core::ConstPieces(whole->data(), row);
    message = nullptr;
    owner = std::move(whole);
  }
  auto range = std::make_unique<core::RowRange>(tensor.map, tensor.done, rows);
  tensor.done += rows;
  KeepCut();

  TensorAnswer answer;
  OutputTensor output = {kDataField, tensor.dtype};
  output.shape = {
      rows, static_cast<std::int64_t>(row / core::DtypeSize(tensor.dtype))};
  output.bare = true;
  answer.outputs.push_back(std::move(output));
  absl::InlinedVector<RowMapComputation::Output, 2> maps;
  maps.push_back({std::move(range), {.pieces = std::move(input)}});
  answer.computation = std::make_unique<RowMapComputation>(
      std::move(maps), BorrowedTensors().tile_bytes());
  return MakeResponse(std::move(answer), std::move(owner), message, "",
                      max_response_bytes);
}

}  // namespace posenc::server
