// The sequence of bytes in a stream: first the bytes of ids and shifts, then
// the bytes of the tensors to rotate. The first message of the stream describes
// these tensors.

#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/runtime/pieces.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/split.h"

namespace posenc::server {

class StreamedBytes {
 public:
  // Adds ids or shifts whose elements come in the stream. Does nothing if `ids`
  // already has elements. `path` is the field of `ids` in the call. `ids` must
  // outlive this object.
  absl::Status AddIds(absl::string_view path, v1::Tensor* ids);
  // Adds the next tensor to rotate, which must have no elements. Must also be
  // called for a tensor that is not given.
  absl::Status AddTensor(absl::string_view path, bool given,
                         const v1::Tensor& tensor);

  // Returns the size of ids and shifts in bytes.
  std::int64_t ids_bytes() const { return ids_bytes_; }
  // Returns the tensors to rotate, with their sizes but without their bytes.
  absl::Span<const wire::BorrowedBytes> tensors() const { return tensors_; }

  // Takes the next bytes of the stream. Stores the elements of ids, and returns
  // the bytes of tensors. Refuses bytes beyond the end with an error that names
  // `data`.
  absl::StatusOr<core::ConstPieces> Take(core::ConstPieces bytes);
  bool ids_complete() const { return received_ >= ids_bytes_; }
  // Returns an error if bytes are missing.
  absl::Status CheckComplete() const;

 private:
  struct Part {
    std::int64_t end;      // offset of the end of its bytes
    std::int64_t element;  // size of an element
    v1::Tensor* ids;       // null: a tensor to rotate
  };

  // Adds the bytes of `tensor` as the next part of the stream. Returns their
  // number.
  absl::StatusOr<std::int64_t> AddPart(absl::string_view path,
                                       const v1::Tensor& tensor,
                                       v1::Tensor* ids);
  std::int64_t total() const { return parts_.empty() ? 0 : parts_.back().end; }
  absl::Status Mismatch(std::int64_t bytes) const;

  absl::InlinedVector<Part, 4> parts_;
  absl::InlinedVector<wire::BorrowedBytes, 2> tensors_;
  std::int64_t ids_bytes_ = 0;
  std::int64_t received_ = 0;
};

}  // namespace posenc::server
