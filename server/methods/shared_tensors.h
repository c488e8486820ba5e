// The shared memory that one call uses: tensors of its request that lie there,
// and places for tensors of its response.
//
// A tensor that one pass over its rows reads is used where it lies. Everything
// else is copied out first and checked then, so that a caller who changes the
// bytes meanwhile gets other numbers and nothing worse.

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
#include "posenc/wire/split.h"
#include "server/convert/shared_parts.h"
#include "server/methods/methods.h"
#include "server/rpc/computation.h"
#include "server/shared/shared_files.h"

namespace posenc::server {

using BorrowedList = decltype(wire::SplitMessage::tensors);

class SharedTensors {
 public:
  // max_copied_bytes: of all that is copied out.
  SharedTensors(const CallSharing& call, std::int64_t max_copied_bytes)
      : call_(call), max_copied_bytes_(max_copied_bytes) {}

  // Whether the call may name shared memory: UNIMPLEMENTED or PERMISSION_DENIED
  // if not, kSharedMemoryUnavailable.
  static absl::Status CheckAllowed(const CallSharing& call);

  // Makes a request's tensors readable. bytes[i] becomes the bytes of
  // fields[i], wherever they are; other tensors get their data. Errors are
  // those of SharedFiles and of a tensor's size, with the tensor's path.
  absl::Status ReadInputs(const SharedParts& parts,
                          google::protobuf::Message* request,
                          absl::Span<const int> fields, BorrowedList* bytes);

  // Gives the tensors of the answer their places: that of the field X_output is
  // for the response's X. INVALID_ARGUMENT if there is no such tensor, and as
  // PlaceOutput().
  absl::Status PlaceOutputs(const SharedParts& parts,
                            const google::protobuf::Descriptor& response,
                            TensorAnswer* answer);

  // Gives one tensor of the answer its place. Errors are those of SharedFiles;
  // INVALID_ARGUMENT if the place overlaps another output's, or an input's,
  // unless it is that of the input from which the output is made in place;
  // ABORTED, kNotRepeatable, if it is and the call has been sent before.
  absl::Status PlaceOutput(const std::string& field,
                           const v1::SharedMemory& place, std::size_t output,
                           TensorAnswer* answer);
  // What the answer has to keep and to ask, once all is added.
  static void Attach(std::shared_ptr<const SharedTensors> shared,
                     TensorAnswer* answer);

  // Bytes that were copied out.
  std::int64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct Use {
    std::string field;
    SharedPlace place;
    bool copied = false;
  };

  absl::StatusOr<SharedPlace> Map(const v1::SharedMemory& place,
                                  absl::uint128 bytes) const;
  // Copies the bytes of an input.
  absl::Status Copy(std::string field, SharedPlace place, std::string* to);
  absl::Status CheckOverlap(const std::string& field, const SharedPlace& place,
                            std::size_t output, const TensorAnswer& answer,
                            bool* holds_input) const;
  absl::Status CheckNotCut(const Use& use) const;
  absl::Status CheckNotCut() const;

  const CallSharing call_;
  const std::int64_t max_copied_bytes_;
  std::int64_t copied_bytes_ = 0;
  std::int64_t used_bytes_ = 0;  // where they lie
  std::vector<Use> inputs_, outputs_;
};

}  // namespace posenc::server
