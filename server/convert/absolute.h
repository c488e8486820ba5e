// Absolute encodings of requests.

#pragma once

#include "absl/status/statusor.h"
#include "core/absolute/add_encoding.h"
#include "core/absolute/encoding.h"
#include "core/tensor.h"
#include "posenc/v1/absolute.pb.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// An encoding whose tables borrow from the message, or from the tensors here.
struct InputAbsolute {
  core::AbsoluteEncoding encoding;
  InputTensors tensors;
};
absl::StatusOr<InputAbsolute> ReadAbsolute(
    const v1::AbsoluteEncoding& encoding);

// What a value of 0 stands for is filled in: add, float32.
core::Combination ReadCombination(v1::Combination combination);
core::Dtype ReadTableDtype(v1::Dtype dtype);

}  // namespace posenc::server
