// Tensors of messages as the core's views, and back.
//
// This directory is the seam between protobuf and core: nothing else in the
// server looks inside a Tensor, a RopeSource, Positions or an encoding. Field
// paths of errors are relative to the message that is converted.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/runtime/pieces.h"
#include "core/tensor.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/split.h"

namespace posenc::server {

// Which of a Tensor's two forms carries the elements.
enum class TensorForm { kData, kValues };

// Tensors of a request whose bytes were left in the slices that gRPC received,
// by the numbers of their fields.
class BorrowedTensors {
 public:
  BorrowedTensors() = default;  // none: the message itself has the bytes
  // bytes[i] are those of fields[i]. shared: some of them are in shared memory.
  BorrowedTensors(absl::Span<const int> fields,
                  absl::Span<const wire::BorrowedBytes> bytes, bool shared)
      : fields_(fields), bytes_(bytes), shared_(shared) {}

  // Null if the bytes of this field are in the message.
  const wire::BorrowedBytes* Find(int field) const;

  // The bytes that a tile of a computation over them should read and write.
  std::size_t tile_bytes() const;

 private:
  absl::Span<const int> fields_;
  absl::Span<const wire::BorrowedBytes> bytes_;
  bool shared_ = false;
};

// A tensor of a request. Its bytes are the message's, or `own`.
struct InputTensor {
  // data is null if the bytes lie in several pieces.
  core::ConstTensorView view;
  core::ConstPieces pieces;
  TensorForm form = TensorForm::kData;
  // Elements that were written out as `values`, or pieces put together.
  std::unique_ptr<char[]> own;

  // Puts the pieces together, if there are several.
  void Gather();
};

// Bytes that the elements of a tensor take, by its dtype and shape.
// FieldRequired without dtype.
absl::StatusOr<absl::uint128> TensorBytes(const v1::Tensor& tensor);

// Reads a tensor whose bytes are in the message, or in `data` if that is not
// null: those of a tensor in shared memory always are. FieldRequired without
// dtype or elements; kTensorSizeMismatch if data or values are not what dtype
// and shape take.
absl::StatusOr<InputTensor> ReadTensor(
    const v1::Tensor& tensor, const wire::BorrowedBytes* data = nullptr);

// Reads the tensor in the field `field`, to which errors refer; FieldRequired
// if it is not given.
absl::StatusOr<InputTensor> ReadRequiredTensor(absl::string_view field,
                                               bool given,
                                               const v1::Tensor& tensor,
                                               const wire::BorrowedBytes* data);

// The tensors of an encoding. They live as long as views of them are used.
using InputTensors = std::vector<InputTensor>;

// Reads the field `field` into `view`, which stays empty if it is not given.
absl::Status ReadTensorField(absl::string_view field, bool given,
                             const v1::Tensor& tensor, InputTensors* tensors,
                             std::optional<core::ConstTensorView>* view);

// Bytes that the response's field `field` takes on the wire with this tensor.
absl::uint128 TensorFieldBytes(int field, core::Dtype dtype,
                               const core::Shape& shape, TensorForm form);

// A tensor whose elements are written out as `values`.
v1::Tensor SpelledOut(const core::ConstTensorView& elements);

}  // namespace posenc::server
