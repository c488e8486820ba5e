// The tensors that a call rotates, for its unary form and for its stream.

#pragma once

#include <cstddef>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "core/runtime/row_map.h"
#include "server/convert/tensor.h"
#include "server/rpc/computation.h"

namespace posenc::server {

struct RotatedTensor {
  int field;  // number in the response
  InputTensor tensor;
  std::unique_ptr<const core::RowMap> map;
};

// In the order of a stream's bytes.
using Rotation = absl::InlinedVector<RotatedTensor, 2>;

// Returns the answer that holds the rotated tensors.
TensorAnswer AnswerRotation(Rotation rotation, std::size_t tile_bytes);

}  // namespace posenc::server
