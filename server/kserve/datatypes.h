// How KServe's protocol spells the types of elements.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/tensor.h"
#include "inference/inference.pb.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::server {

// "FP32" as DTYPE_FLOAT32; DTYPE_UNSPECIFIED for a type that tensors of posenc
// do not have.
v1::Dtype DtypeOf(absl::string_view datatype);

absl::string_view DatatypeName(core::Dtype dtype);

// Of ModelConfig.
inference::DataType ConfigTypeOf(absl::string_view datatype);

// All of them, for an error: "FP32, FP16, ...".
std::string DatatypeNames();

}  // namespace posenc::server
