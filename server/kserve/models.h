// The models of KServe's service: RPCs of the contract in snake case, version
// "1". Inputs and outputs are those of the contract; their names are paths in
// its messages (native_request.h).

#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "server/convert/tensor.h"
#include "server/convert/unknown_fields.h"
#include "server/methods/methods.h"
#include "server/rpc/computation.h"

namespace posenc::server {

inline constexpr char kModelVersion[] = "1";

// A tensor that is listed for tools. Tensors inside encodings are accepted but
// not listed: a tool that sends every input would have to invent them.
struct ModelTensor {
  absl::string_view name;
  absl::string_view datatypes;  // separated by ',', the usual one first
  int rank;
};

struct ModelInput : ModelTensor {
  bool optional;
};

struct ModelOutput : ModelTensor {
  // Place in the native response, as in OutputTensor.
  int field;
  int within = 0;
  // Listed for tools, and sent if the request names no outputs. Other outputs
  // are sent only on request.
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
  // Calls a function of methods/answers.h. Sets `response` to the fields of the
  // native response that are not tensors.
  absl::StatusOr<TensorAnswer> (*answer)(
      const google::protobuf::Message& request, const BorrowedTensors& borrowed,
      const MethodContext& context,
      std::unique_ptr<google::protobuf::Message>* response);
};

const std::vector<Model>& Models();

// Returns NOT_FOUND if no model has this name and version; "" is any version.
absl::StatusOr<const Model*> FindModel(absl::string_view name,
                                       absl::string_view version);

}  // namespace posenc::server
