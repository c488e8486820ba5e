// Names of element types in KServe's protocol.

#pragma once

#include "absl/strings/string_view.h"
#include "core/tensor.h"
#include "inference/inference.pb.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::server {

struct Datatype {
  absl::string_view name;
  v1::Dtype dtype;
  inference::DataType config;  // in ModelConfig, which lacks some types
};

// The datatypes that tensors of posenc may have.
inline constexpr Datatype kDatatypes[] = {
    {"FP32", v1::DTYPE_FLOAT32, inference::TYPE_FP32},
    {"FP16", v1::DTYPE_FLOAT16, inference::TYPE_FP16},
    {"BF16", v1::DTYPE_BFLOAT16, inference::TYPE_BF16},
    {"FP64", v1::DTYPE_FLOAT64, inference::TYPE_FP64},
    {"FP8E4M3", v1::DTYPE_FLOAT8_E4M3FN, inference::TYPE_INVALID},
    {"FP8E5M2", v1::DTYPE_FLOAT8_E5M2, inference::TYPE_INVALID},
    {"INT32", v1::DTYPE_INT32, inference::TYPE_INT32},
    {"INT64", v1::DTYPE_INT64, inference::TYPE_INT64},
};

// Returns null if the name is unknown.
inline const Datatype* FindDatatype(absl::string_view name) {
  for (const Datatype& known : kDatatypes) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

inline absl::string_view DatatypeName(core::Dtype dtype) {
  for (const Datatype& known : kDatatypes) {
    if (known.dtype == static_cast<v1::Dtype>(dtype)) return known.name;
  }
  return "";
}

}  // namespace posenc::server
