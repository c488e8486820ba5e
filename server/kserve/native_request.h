// Builds a request of the contract from KServe's names, which are paths in it.
//
//   input "q"                        the Tensor field q
//   input "positions"                the Tensor `ids` of the Positions field
//   parameter "rope.spec.rope_theta" any other field, from the root
//   parameter "rope"                 a message or list, as ProtoJSON
//
// A scalar is of its own kind, or text: KServe's client can send no double.
// Nothing is converted otherwise. Paths come from strangers: they are walked
// by descriptors, at most 8 steps, and never into a list.

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
#include "server/convert/shared_parts.h"
#include "server/convert/tensor.h"
#include "server/convert/unknown_fields.h"
#include "server/memory/request_message.h"
#include "server/methods/shared_tensors.h"

namespace posenc::server {

class NativeRequest {
 public:
  // prototype: an empty request. received: what it is made of; copies of that
  // are claimed there.
  NativeRequest(const google::protobuf::Message& prototype,
                RequestMessage* received)
      : message_(prototype.New()), received_(received) {}

  // Sets a tensor. Bytes of a tensor of the root are borrowed; those of others
  // are copied into the request. One in shared memory has no bytes before
  // ReadShared(). Errors are of "inputs.<name>": a path that is
  // no tensor's, or that was set before.
  absl::Status SetTensor(const std::string& name, v1::Tensor tensor,
                         const wire::BorrowedBytes& data);

  // Sets another field. Errors are of "parameters.<name>".
  absl::Status SetParameter(const std::string& name,
                            const inference::InferParameter& value);

  // UNIMPLEMENTED, kFieldUnknown, for a number in ProtoJSON that no enum has.
  // known: of the request's type.
  absl::Status CheckKnown(const KnownFields& known) const;

  // Reads what lies in shared memory. INVALID_ARGUMENT if a parameter names a
  // place there for an output.
  absl::Status ReadShared(const SharedPartsFinder& finder,
                          SharedTensors* shared);

  const google::protobuf::Message& message() const { return *message_; }
  BorrowedTensors borrowed() const { return {fields_, bytes_, shared_}; }

 private:
  struct Place {
    google::protobuf::Message* parent;
    const google::protobuf::FieldDescriptor* field;
  };

  // The place at the end of a path. `tensor`: that of a tensor.
  absl::StatusOr<Place> Walk(absl::string_view path, bool tensor);
  // INVALID_ARGUMENT if the path, one above or one below it was taken before.
  absl::Status Take(const std::string& path);

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
