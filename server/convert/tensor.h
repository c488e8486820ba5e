// Converts tensors of messages to core's views, and back.
//
// This directory converts between protobuf and core. Field paths of errors are
// relative to the converted message.

#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/runtime/pieces.h"
#include "google/protobuf/message.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/split.h"

namespace posenc::server {

// The field of a Tensor that contains the elements.
enum class TensorForm { kData, kValues };

// Tensors of a request, by field number. Their bytes are still in the slices
// that gRPC received, or in shared memory.
class BorrowedTensors {
 public:
  BorrowedTensors() = default;  // none: all bytes are in the message
  // bytes[i] belong to fields[i]. `shared` is true if some bytes are in shared
  // memory.
  BorrowedTensors(absl::Span<const int> fields,
                  absl::Span<const wire::BorrowedBytes> bytes, bool shared)
      : fields_(fields), bytes_(bytes), shared_(shared) {}

  // Returns null if the bytes of this field are in the message.
  const wire::BorrowedBytes* Find(int field) const;

  // Returns how many bytes one tile of a computation should read and write.
  std::size_t tile_bytes() const;

 private:
  absl::Span<const int> fields_;
  absl::Span<const wire::BorrowedBytes> bytes_;
  bool shared_ = false;
};

// A tensor of a request. Its bytes are in the message, or in `own`.
struct InputTensor {
  // view.data is null if the bytes lie in several pieces.
  core::ConstTensorView view;
  core::ConstPieces pieces;
  TensorForm form = TensorForm::kData;
  // Elements converted from `values`, or joined pieces.
  std::unique_ptr<char[]> own;

  // Joins the pieces, if there are several.
  void Gather();
};

// Returns the size in bytes of a tensor's elements, by its dtype and shape.
// Returns FieldRequired without a dtype.
absl::StatusOr<absl::uint128> TensorBytes(const v1::Tensor& tensor);

// Reads a tensor whose bytes are in `data`, or in the message if `data` is
// null. A tensor in shared memory always has `data`. Returns FieldRequired
// without a dtype or elements, and kTensorSizeMismatch if the size of the
// elements does not match dtype and shape.
absl::StatusOr<InputTensor> ReadTensor(
    const v1::Tensor& tensor, const wire::BorrowedBytes* data = nullptr);

// Reads the tensor in `field`. Errors name the field. Returns FieldRequired if
// the tensor is not given.
absl::StatusOr<InputTensor> ReadRequiredTensor(absl::string_view field,
                                               bool given,
                                               const v1::Tensor& tensor,
                                               const wire::BorrowedBytes* data);

// Elements that were converted from `values`. They must outlive all views of
// their tensors.
using OwnedElements = std::vector<std::unique_ptr<char[]>>;

// Reads a tensor whose elements are in the message. The view points into the
// message, or into `owned` if elements were converted.
absl::StatusOr<core::ConstTensorView> ReadView(const v1::Tensor& tensor,
                                               OwnedElements* owned);

// A field of type Tensor, and its view in core's arguments.
struct TensorField {
  const char* name;
  std::optional<core::ConstTensorView>* view;
};

// Reads the fields of `message` into their views. The view of a field that is
// not given stays empty. An error names all wrong fields, as fields of `path`.
absl::Status ReadTensorFields(absl::string_view path,
                              const google::protobuf::Message& message,
                              std::initializer_list<TensorField> fields,
                              OwnedElements* owned);

// Returns FieldRequired if no layout is given. KnownFields has refused layouts
// that this server does not know.
absl::Status CheckLayout(v1::Layout layout);

// Returns the size on the wire of the response's `field` with this tensor.
absl::uint128 TensorFieldBytes(int field, core::Dtype dtype,
                               const core::Shape& shape, TensorForm form);

// Returns a tensor with its elements in `values`.
v1::Tensor SpelledOut(const core::ConstTensorView& elements);

}  // namespace posenc::server
