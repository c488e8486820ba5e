// Builds a request of the contract from KServe's names, which are paths in it.
//
//   input "q"                        the Tensor field q
//   input "positions"                the Tensor `ids` of the Positions field
//   parameter "rope.spec.rope_theta" any other field, from the root
//   parameter "rope"                 a message or list, as ProtoJSON
//
// Paths come from strangers: they are walked by descriptors, at most 8 steps,
// and never into a list.

#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "inference/inference.pb.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/split.h"
#include "server/convert/tensor.h"
#include "server/kserve/models.h"
#include "server/memory/request_message.h"
#include "server/methods/shared_tensors.h"

namespace posenc::server {

class NativeRequest {
 public:
  // received: what it is made of; copies of that are claimed there.
  NativeRequest(const Model& model, RequestMessage* received)
      : model_(model), message_(model.request->New()), received_(received) {}

  // Each sets the field at the end of a path: a tensor, or another one. An
  // error, without a field, for a path that is none, or was set before. Bytes
  // of a tensor of the root are borrowed; those of others are copied into the
  // request. One in shared memory has no bytes before ReadShared().
  absl::Status SetTensor(const std::string& path, v1::Tensor tensor,
                         const wire::BorrowedBytes& data);
  absl::Status SetParameter(const std::string& path,
                            const inference::InferParameter& value);

  // UNIMPLEMENTED, kFieldUnknown, for a number in ProtoJSON that no enum has.
  absl::Status CheckKnown() const;

  // Reads what lies in shared memory. INVALID_ARGUMENT if a parameter names a
  // place there for an output.
  absl::Status ReadShared(SharedTensors* shared);

  const google::protobuf::Message& message() const { return *message_; }
  BorrowedTensors borrowed() const { return {fields_, bytes_, shared_}; }

 private:
  struct Place {
    google::protobuf::Message* parent;
    const google::protobuf::FieldDescriptor* field;
  };

  // The place at the end of a path. none: the fact if there is none.
  absl::StatusOr<Place> Walk(absl::string_view path, absl::string_view none);
  // INVALID_ARGUMENT if the path, one above or one below it was taken before.
  absl::Status Take(const std::string& path);

  const Model& model_;
  const std::unique_ptr<google::protobuf::Message> message_;
  RequestMessage* const received_;
  std::set<std::string> taken_;  // paths
  bool has_json_ = false;
  // Of tensors that are borrowed.
  std::vector<int> fields_;
  BorrowedList bytes_;
  bool shared_ = false;  // some of them are in shared memory
};

}  // namespace posenc::server
