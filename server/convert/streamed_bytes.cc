#include "server/convert/streamed_bytes.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/tensor.h"
#include "server/base/errors.h"
#include "server/convert/tensor.h"

namespace posenc::server {
namespace {

// Limit for the size of one tensor. The sum of a few such sizes does not
// overflow.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 59;

}  // namespace

absl::Status StreamedBytes::AddIds(absl::string_view path, v1::Tensor* ids) {
  if (!ids->data().empty() || ids->values_size() > 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::int64_t bytes, AddPart(path, *ids, ids));
  ids_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status StreamedBytes::AddTensor(absl::string_view path, bool given,
                                      const v1::Tensor& tensor) {
  tensors_.emplace_back();
  if (!given) return absl::OkStatus();
  if (!tensor.data().empty() || tensor.values_size() > 0) {
    return core::FieldInvalid(
        absl::StrCat(path, tensor.values_size() > 0 ? ".values" : ".data"),
        "set in a stream: its messages bring the elements in their data");
  }
  ASSIGN_OR_RETURN(const std::int64_t bytes, AddPart(path, tensor, nullptr));
  tensors_.back().size = static_cast<std::size_t>(bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::int64_t> StreamedBytes::AddPart(absl::string_view path,
                                                    const v1::Tensor& tensor,
                                                    v1::Tensor* ids) {
  const absl::StatusOr<absl::uint128> bytes = TensorBytes(tensor);
  if (!bytes.ok()) return core::Prefixed(path, bytes.status());
  if (*bytes > kMostBytes) {
    return core::FieldInvalid(absl::StrCat(path, ".shape"), ToString(*bytes),
                              " bytes; at most ", kMostBytes);
  }
  const auto size = static_cast<std::int64_t>(absl::Uint128Low64(*bytes));
  const std::size_t element =
      core::DtypeSize(static_cast<core::Dtype>(tensor.dtype()));
  parts_.push_back({total() + size, static_cast<std::int64_t>(element), ids});
  return size;
}

absl::StatusOr<core::ConstPieces> StreamedBytes::Take(core::ConstPieces bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  const std::int64_t end = received_ + count;
  if (end > total()) return Mismatch(end);
  for (const Part& part : parts_) {
    if (end > part.end) continue;
    if ((part.end - end) % part.element == 0) break;
    return core::FieldInvalid("data", "the message ends after byte ", end,
                              " of the stream, inside an element of ",
                              part.element, " bytes");
  }
  std::size_t taken = 0;
  for (const Part& part : parts_) {
    if (part.ids == nullptr) break;
    const std::int64_t n = std::min(part.end, end) - received_;
    if (n <= 0) continue;
    std::string* const data = part.ids->mutable_data();
    const std::size_t old = data->size();
    data->resize(old + n);
    bytes.Read(taken, n, data->data() + old);
    received_ += n;
    taken += n;
  }
  received_ = end;
  return taken == 0 ? std::move(bytes) : bytes.Part(taken, count - taken);
}

absl::Status StreamedBytes::CheckComplete() const {
  return received_ == total() ? absl::OkStatus() : Mismatch(received_);
}

absl::Status StreamedBytes::Mismatch(std::int64_t bytes) const {
  return core::MakeError(absl::StatusCode::kInvalidArgument,
                         core::ErrorReason::kTensorSizeMismatch, "data",
                         absl::StrCat(bytes, " bytes in the stream",
                                      bytes > total() ? " so far" : "",
                                      "; its call describes ", total()),
                         {{"expectedBytes", absl::StrCat(total())},
                          {"actualBytes", absl::StrCat(bytes)}});
}

}  // namespace posenc::server
