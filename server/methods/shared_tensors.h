// The shared memory that one call uses: tensors of its request, and places for
// tensors of its response.
//
// A tensor whose rows are read once is used in place. Other tensors are first
// copied out of shared memory and then checked. So a caller that changes the
// bytes during the call gets other numbers, but cannot harm the server.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/split.h"
#include "server/call/computation.h"
#include "server/call/handler.h"
#include "server/methods/methods.h"
#include "server/shared_memory/shared_files.h"

namespace posenc::server {

// Returns the field numbers of the tensors that are direct fields of a message.
inline std::vector<int> TensorFields(
    const google::protobuf::Descriptor& message) {
  std::vector<int> fields;
  for (int i = 0; i < message.field_count(); ++i) {
    if (message.field(i)->message_type() == v1::Tensor::descriptor()) {
      fields.push_back(message.field(i)->number());
    }
  }
  return fields;
}

using BorrowedList = decltype(wire::SplitMessage::tensors);

// The parts of a message that are about shared memory: tensors in shared
// memory, and places in shared memory for tensors of the response. They may be
// at any depth of the message. The pointers point into the message.
struct SharedParts {
  // `path` is the tensor's path, such as "positions.ids" or "tables[0].tensor".
  // `field` is the field number if the tensor is a direct field of the message,
  // else 0.
  struct Tensor {
    std::string path;
    int field;
    v1::Tensor* tensor;
  };
  struct Place {
    std::string path;
    const v1::SharedMemory* place;
  };
  std::vector<Tensor> tensors;
  std::vector<Place> places;

  bool none() const { return tensors.empty() && places.empty(); }
  // Returns whether the tensors are too large to be read on a loop's thread.
  bool TakesLong() const;
  // Returns INVALID_ARGUMENT if there are any parts, because streams must not
  // use shared memory.
  absl::Status CheckNone() const;
};

// Finds the parts by visiting every field that is set. KnownFields::Walk() is a
// cheaper way to find that a message has no shared memory.
SharedParts FindSharedParts(google::protobuf::Message* message);

class SharedTensors {
 public:
  // `max_copied_bytes` is the limit for all bytes that are copied out of shared
  // memory.
  SharedTensors(const CallSharing& call, std::int64_t max_copied_bytes)
      : call_(call), max_copied_bytes_(max_copied_bytes) {}

  // Returns UNIMPLEMENTED or PERMISSION_DENIED, kSharedMemoryUnavailable, if
  // the call may not name shared memory.
  static absl::Status CheckAllowed(const CallSharing& call);

  // Makes the request's tensors in shared memory readable. Sets bytes[i] to the
  // bytes of the tensor in fields[i], whether or not they are in shared memory.
  // Other tensors in shared memory are copied into their field `data`.
  // `reserve` claims the memory of the copies. Returns errors of SharedFiles,
  // of a tensor's size and of `reserve`, with the tensor's path.
  absl::Status ReadInputs(const SharedParts& parts,
                          const core::ReserveFunction& reserve,
                          google::protobuf::Message* request,
                          absl::Span<const int> fields, BorrowedList* bytes);

  // Sets the places of the answer's tensors. The request's field X_output is
  // the place for the response's tensor X. `request` is a request type of the
  // contract. Returns INVALID_ARGUMENT if the response has no tensor X, and
  // errors of PlaceOutput().
  absl::Status PlaceOutputs(const SharedParts& parts,
                            const google::protobuf::Descriptor& request,
                            TensorAnswer* answer);

  // Sets the place of one tensor of the answer. The output may have exactly the
  // place of an input, if the output's rows can overwrite the rows of this
  // input. Returns INVALID_ARGUMENT if the place overlaps an input in any other
  // way, or overlaps another output. Returns ABORTED, kNotRepeatable, if the
  // output overwrites its input but the call has been sent before. Also returns
  // errors of SharedFiles.
  absl::Status PlaceOutput(const std::string& field,
                           const v1::SharedMemory& place, std::size_t output,
                           TensorAnswer* answer);
  // Makes the answer claim the bytes that it uses in shared memory, and check
  // after the computation that no file was cut short. Must be called after all
  // places are set.
  static void Attach(std::shared_ptr<const SharedTensors> shared,
                     TensorAnswer* answer);

 private:
  struct Use {
    std::string field;
    SharedPlace place;
    bool copied = false;
  };

  absl::StatusOr<SharedPlace> Map(const v1::SharedMemory& place,
                                  absl::uint128 bytes) const;
  // Copies the bytes of an input to `to`.
  absl::Status Copy(std::string field, SharedPlace place,
                    const core::ReserveFunction& reserve, std::string* to);
  absl::Status CheckOverlap(const std::string& field, const SharedPlace& place,
                            std::size_t output, const TensorAnswer& answer,
                            bool* holds_input) const;
  absl::Status CheckNotCut(const Use& use) const;
  absl::Status CheckNotCut() const;

  const CallSharing call_;
  const std::int64_t max_copied_bytes_;
  std::int64_t copied_bytes_ = 0;
  std::int64_t used_bytes_ = 0;  // read or written in shared memory
  std::vector<Use> inputs_, outputs_;
};

}  // namespace posenc::server
