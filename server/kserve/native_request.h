// Builds a request of the contract from KServe's names, which are paths in it.
//
//   input "q"                        the Tensor field q
//   input "positions"                the Tensor `ids` of the Positions field
//   parameter "rope.spec.rope_theta" any other field, from the root
//   parameter "rope"                 a message or list, as ProtoJSON
//
// Paths come from untrusted clients: they are resolved with descriptors, in at
// most 8 steps, and never enter a list.

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
  // received: the source of the request, which claims the copies of its parts.
  NativeRequest(const Model& model, RequestMessage* received)
      : model_(model), message_(model.request->New()), received_(received) {}

  // These set the field at the end of a path: a tensor, or another field. An
  // error, without a field, if the path does not exist or was set before. Bytes
  // of a root field's tensor are borrowed; others are copied into the request.
  // A tensor in shared memory has no bytes before ReadShared().
  absl::Status SetTensor(const std::string& path, v1::Tensor tensor,
                         const wire::BorrowedBytes& data);
  absl::Status SetParameter(const std::string& path,
                            const inference::InferParameter& value);

  // Returns UNIMPLEMENTED, kFieldUnknown, for an unknown enum number in JSON.
  absl::Status CheckKnown() const;

  // Reads the tensors in shared memory. INVALID_ARGUMENT if a parameter names a
  // place for an output there.
  absl::Status ReadShared(SharedTensors* shared);

  const google::protobuf::Message& message() const { return *message_; }
  BorrowedTensors borrowed() const { return {fields_, bytes_, shared_}; }

 private:
  struct Place {
    google::protobuf::Message* parent;
    const google::protobuf::FieldDescriptor* field;
  };

  // Returns the place at the end of a path. none: the error for a wrong path.
  absl::StatusOr<Place> Walk(absl::string_view path, absl::string_view none);
  // INVALID_ARGUMENT if the path, one above or one below it was taken before.
  absl::Status Take(const std::string& path);

  const Model& model_;
  const std::unique_ptr<google::protobuf::Message> message_;
  RequestMessage* const received_;
  std::set<std::string> taken_;  // paths
  bool has_json_ = false;
  // Field numbers and bytes of the borrowed tensors.
  std::vector<int> fields_;
  BorrowedList bytes_;
  bool shared_ = false;  // at least one is in shared memory
};

}  // namespace posenc::server
