#include "tests/fuzz/split_check.h"

#include <algorithm>
#include <vector>

#include "posenc/v1/service.pb.h"
#include "posenc/wire/split.h"

namespace posenc::fuzz {
namespace {

constexpr int kTensorFields[] = {14, 15};

std::string Bytes(const wire::BorrowedBytes& borrowed) {
  std::string bytes;
  for (const absl::Span<const char> piece : borrowed.pieces) {
    bytes.append(piece.data(), piece.size());
  }
  return bytes;
}

}  // namespace

std::string CheckSplit(absl::string_view message, std::size_t slice_bytes) {
  std::vector<absl::Span<const char>> slices;
  const std::size_t step = slice_bytes == 0 ? message.size() : slice_bytes;
  for (std::size_t i = 0; i < message.size(); i += step) {
    slices.emplace_back(message.data() + i, std::min(step, message.size() - i));
  }
  v1::ApplyRopeRequest whole;
  const bool accepted =
      whole.ParseFromArray(message.data(), static_cast<int>(message.size()));
  wire::SplitMessage split;
  if (!wire::SplitTensors(slices, kTensorFields, &split)) return "";

  v1::ApplyRopeRequest rest;
  if (rest.ParseFromString(split.rest) != accepted) {
    return accepted ? "refuses what the generated parser accepts"
                    : "accepts what the generated parser refuses";
  }
  if (!accepted) return "";
  for (int i = 0; i < 2; ++i) {
    v1::Tensor* const tensor =
        i == 0 ? (rest.has_q() ? rest.mutable_q() : nullptr)
               : (rest.has_k() ? rest.mutable_k() : nullptr);
    const std::string bytes = Bytes(split.tensors[i]);
    if (bytes.size() != split.tensors[i].size) return "wrong size";
    if (tensor == nullptr) {
      if (!bytes.empty()) return "bytes of a tensor that is not there";
      continue;
    }
    if (!tensor->data().empty()) return "tensor bytes were left in the rest";
    tensor->set_data(bytes);
  }
  // Unknown fields are part of the text: both parsers keep them.
  if (rest.SerializeAsString() != whole.SerializeAsString()) {
    return "values differ";
  }
  return "";
}

}  // namespace posenc::fuzz
