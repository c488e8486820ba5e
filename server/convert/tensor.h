// Tensors of messages as the core's views, and back.
//
// This directory is the seam between protobuf and core: nothing else in the
// server looks inside a Tensor, a RopeSource, Positions or an encoding. Field
// paths of errors are relative to the message that is converted.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/runtime/row_map.h"
#include "core/tensor.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/split.h"

namespace posenc::server {

// Which of a Tensor's two forms carries the elements.
enum class TensorForm { kData, kValues };

// A tensor of a request. It borrows the message's bytes, or those here.
struct InputTensor {
  // data is null where the bytes lie in several pieces.
  core::ConstTensorView view;
  core::Pieces pieces;
  TensorForm form = TensorForm::kData;
  // Values, as elements of dtype; or pieces that were put together.
  std::unique_ptr<char[]> own;

  // Puts the pieces together, where there are several.
  void Gather();
};

// kTensorSizeMismatch where data or values are not what dtype and shape say.
absl::StatusOr<InputTensor> ReadTensor(const v1::Tensor& tensor);

// The same where the bytes of `data` were taken out of the message; null: they
// were not.
absl::StatusOr<InputTensor> ReadTensor(const v1::Tensor& tensor,
                                       const wire::BorrowedBytes* data);

// Tensors that an encoding has, for as long as views of them are used.
using InputTensors = std::vector<InputTensor>;

// Reads the field `field` into `view`, which stays empty where it is not given.
absl::Status ReadTensorField(absl::string_view field, bool given,
                             const v1::Tensor& tensor, InputTensors* tensors,
                             std::optional<core::ConstTensorView>* view);

// In decimal.
std::string ToString(absl::uint128 value);

// Bytes that a response's field of this tensor takes on the wire.
absl::uint128 TensorFieldBytes(core::Dtype dtype, const core::Shape& shape,
                               TensorForm form);

// Gives `tensor` dtype, shape and room for the elements, and returns the room.
// Callers have checked the size.
core::TensorView AllocateTensor(core::Dtype dtype, const core::Shape& shape,
                                v1::Tensor* tensor);

// What stands before the data of such a field: its tag and length, dtype,
// shape, and the tag and length of `data`.
std::string TensorFieldHeader(int field, core::Dtype dtype,
                              const core::Shape& shape);

// Appends the field with a tensor that has all its elements.
void AppendTensorField(int field, const v1::Tensor& tensor, std::string* to);

// Turns data into values.
void SpellOut(v1::Tensor* tensor);

}  // namespace posenc::server
