// The models of KServe's service: RPCs of the contract in snake case, version
// "1". What they take and give is the contract's; names are paths in its
// messages (native_request.h).

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

// A tensor that tools are told of. Those inside of encodings are taken as well
// and not listed: a tool that sends every input would have to make them up.
struct ModelTensor {
  absl::string_view name;
  absl::string_view datatypes;  // with ',' between them, the usual one first
  int rank;
};

struct ModelInput : ModelTensor {
  bool optional;
};

struct ModelOutput : ModelTensor {
  // Where the native response has it: OutputTensor's.
  int field;
  int within = 0;
  // Told to tools, and given if no outputs are asked for. If not, given to
  // those who ask for it.
  bool listed = true;
};

struct Model {
  absl::string_view name;
  const google::protobuf::Message* request;  // an empty one
  const KnownFields* known;                  // of its type
  std::vector<ModelInput> inputs;
  std::vector<ModelOutput> outputs;
  // As CallHandler::TakesLong().
  bool (*takes_long)(const google::protobuf::Message& request);
  // As in methods/answers.h. `response` is set to the native response's fields
  // that are no tensors.
  absl::StatusOr<TensorAnswer> (*answer)(
      const google::protobuf::Message& request, const BorrowedTensors& borrowed,
      const MethodContext& context,
      std::unique_ptr<google::protobuf::Message>* response);
};

const std::vector<Model>& Models();

// NOT_FOUND if there is no model of this name, or not in this version; "" is
// any.
absl::StatusOr<const Model*> FindModel(absl::string_view name,
                                       absl::string_view version);

}  // namespace posenc::server
