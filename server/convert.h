// The seam between protobuf and core: nothing else in the server looks inside
// a Tensor, a RopeSource or Positions.
//
// Field paths of errors are relative to the message that is converted.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/absolute/sinusoidal.h"
#include "core/model/compare.h"
#include "core/model/source.h"
#include "core/positions.h"
#include "core/rope/apply.h"
#include "core/rope/frequencies.h"
#include "core/rope/table.h"
#include "core/tensor.h"
#include "posenc/v1/absolute.pb.h"
#include "posenc/v1/rope.pb.h"
#include "posenc/v1/service.pb.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::server {

// Which of a Tensor's two forms carries the elements.
enum class TensorForm { kData, kValues };

// A tensor of a request. The view borrows the message's bytes, or those here.
struct InputTensor {
  core::ConstTensorView view;
  TensorForm form = TensorForm::kData;
  std::unique_ptr<char[]> rounded;  // values, as elements of dtype
};

// kTensorSizeMismatch where data or values are not what dtype and shape say.
absl::StatusOr<InputTensor> ReadTensor(const v1::Tensor& tensor);

// Bytes that a response's field of this tensor takes on the wire.
absl::uint128 TensorFieldBytes(core::Dtype dtype, const core::Shape& shape,
                               TensorForm form);

// Gives `tensor` dtype, shape and room for the elements, and returns the room.
// Callers have checked the size.
core::TensorView AllocateTensor(core::Dtype dtype, const core::Shape& shape,
                                v1::Tensor* tensor);

// Turns data into values.
void SpellOut(v1::Tensor* tensor);

// Positions whose ids borrow from the message, or from the tensor here.
struct InputPositions {
  core::Positions positions;
  InputTensor ids;
};

absl::StatusOr<InputPositions> ReadPositions(const v1::Positions& positions);

// FieldRequired with an empty path where no source is given.
absl::StatusOr<core::RopeSource> ReadRopeSource(const v1::RopeSource& source);

core::QueryScale ReadQueryScale(const v1::QueryScale& scale);
core::Sinusoidal ReadSinusoidal(const v1::Sinusoidal& encoding);

// What a value of 0 stands for is filled in: forward, half, float32.
core::Direction ReadDirection(v1::Direction direction);
core::TableLayout ReadTableLayout(v1::TableLayout layout);
core::Dtype ReadTableDtype(v1::Dtype dtype);

void WriteRope(const core::ResolvedRope& rope, const std::string& content_hash,
               v1::ResolveRopeResponse* response);
void WriteDifference(const core::RopeDifference& difference,
                     v1::RopeDifference* out);

}  // namespace posenc::server
