// The models of KServe's service, all with version "1". Each model serves one
// RPC of the contract, and has the RPC's name in snake case; only
// build_encoding is a second model of BuildTable. The names of inputs and
// outputs are paths in the contract's messages (native_request.cc).

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/tensor.h"
#include "google/protobuf/message.h"
#include "inference/inference.pb.h"
#include "posenc/v1/tensor.pb.h"
#include "server/call/computation.h"
#include "server/convert/tensor.h"
#include "server/convert/unknown_fields.h"
#include "server/methods/methods.h"

namespace posenc::server {

// An element type.
struct Datatype {
  absl::string_view name;
  v1::Dtype dtype;
  // The type in ModelConfig; TYPE_INVALID if ModelConfig lacks the type.
  inference::DataType config;
};

// The datatypes that tensors of posenc may have.
inline constexpr Datatype kDatatypes[] = {
    {"FP32", v1::DTYPE_FLOAT32, inference::TYPE_FP32},
    {"FP16", v1::DTYPE_FLOAT16, inference::TYPE_FP16},
    {"BF16", v1::DTYPE_BFLOAT16, inference::TYPE_BF16},
    {"FP64", v1::DTYPE_FLOAT64, inference::TYPE_FP64},
    {"FP8E4M3", v1::DTYPE_FLOAT8_E4M3FN, inference::TYPE_INVALID},
    {"FP8E5M2", v1::DTYPE_FLOAT8_E5M2, inference::TYPE_INVALID},
    {"INT8", v1::DTYPE_INT8, inference::TYPE_INT8},
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

inline constexpr char kModelVersion[] = "1";

// An input or output that a model lists for tools. Tensors inside encodings are
// accepted but not listed, because a tool that sends every listed input would
// have to invent their values.
struct ModelTensor {
  absl::string_view name;
  absl::string_view datatypes;  // separated by ','; the first one is reported
  int rank;
};

struct ModelInput : ModelTensor {
  bool optional;
};

struct ModelOutput : ModelTensor {
  // Field numbers in the native response, as in OutputTensor.
  int field;
  int within = 0;
  // True if the output is listed for tools, and sent when the request names no
  // outputs. Other outputs are sent only on request.
  bool listed = true;
};

struct Model {
  absl::string_view name;
  const google::protobuf::Message* request;  // an empty one
  const KnownFields* known;                  // fields of its type
  std::vector<ModelInput> inputs;
  std::vector<ModelOutput> outputs;
  // Implements CallHandler::TakesLong().
  bool (*takes_long)(const google::protobuf::Message& request);
  // Calls the RPC's function in methods/methods.h.
  absl::StatusOr<TensorAnswer> (*answer)(
      const google::protobuf::Message& request, const MethodContext& context);
};

const std::vector<Model>& Models();

// Returns NOT_FOUND if no model has this name and version. The version "" means
// any version.
absl::StatusOr<const Model*> FindModel(absl::string_view name,
                                       absl::string_view version);

}  // namespace posenc::server
