// Messages with tensors, without a copy of the tensors' bytes.
//
// In a request the bytes are lent to gRPC (loans.h), which sends them from the
// caller's memory. In a response they stay in the slices in which gRPC received
// them until they are copied, once, to their destination. Only the small
// fields go through the generated code.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "loans.h"
#include "posenc/messages.h"
#include "posenc/wire/split.h"

namespace posenc {

// A field of type posenc.v1.Tensor of a request. The contract gives tensors the
// highest numbers of a message, so that they come last on the wire.
struct TensorField {
  int number;
  const TensorView* view;
};

// Bytes that `message` and these tensors, which are not set in it, take on the
// wire.
std::int64_t MessageBytes(const google::protobuf::Message& message,
                          absl::Span<const TensorField> tensors);

// Writes `message` with these tensors as protobuf would. The bytes of tensors
// of 64 KiB and more are lent, not copied: they must stay as they are until
// `loans` has them back. `owner`, if set, is kept alive for that long.
grpc::ByteBuffer FrameMessage(const google::protobuf::Message& message,
                              absl::Span<const TensorField> tensors,
                              const std::shared_ptr<const void>& owner,
                              Loans* loans);

// Copies the tensors into `message`, for calls over the generated stub.
void SetTensors(absl::Span<const TensorField> tensors,
                google::protobuf::Message* message);

// Reads the bytes of a received tensor from front to back.
class TensorReader {
 public:
  // Borrows the bytes.
  explicit TensorReader(const wire::BorrowedBytes& bytes)
      : pieces_(bytes.pieces) {}

  // Copies the next `size` bytes, which must be there. `to` may be where they
  // are already: in-process channels pass the caller's memory around.
  void Read(std::size_t size, char* to);

 private:
  absl::Span<const absl::Span<const char>> pieces_;
  std::size_t offset_ = 0;  // read of the first of them
};

// A response whose tensors' bytes have not been copied yet. It keeps gRPC's
// slices alive, and borrows the message that was parsed from them.
class ReceivedMessage {
 public:
  // Parses everything into `message` but the bytes of the tensor fields that
  // `numbers` names. INTERNAL if the buffer holds no such message.
  static absl::StatusOr<ReceivedMessage> Parse(
      const grpc::ByteBuffer& buffer, std::vector<int> numbers,
      google::protobuf::Message* message);

  // Takes a message that was parsed as a whole, by the generated stub.
  static ReceivedMessage Of(std::vector<int> numbers,
                            const google::protobuf::Message* message);

  // Tensors are counted as in `numbers`. tensor() has dtype and shape; it is
  // nullptr if the message does not have that tensor.
  const v1::Tensor* tensor(std::size_t index) const;
  std::string name(std::size_t index) const;
  // The memory for a tensor, as errors call it: as the contract calls the field
  // for its place, such as q_output.
  std::string output_name(std::size_t index) const;
  const wire::BorrowedBytes& bytes(std::size_t index) const {
    return bytes_[index];
  }

 private:
  void BorrowFromMessage();

  std::vector<int> numbers_;
  const google::protobuf::Message* message_ = nullptr;
  // What `bytes_` points into, unless the message itself holds the bytes.
  std::vector<grpc::Slice> slices_;
  absl::InlinedVector<wire::BorrowedBytes, 2> bytes_;
};

// Tensors that were copied out of a response. A tensor that the response does
// not have is unset.
struct ReceivedTensors {
  std::vector<absl::optional<TensorView>> views;
  // Keeps alive what did not go to memory of the caller's.
  std::shared_ptr<const void> owner;
};

// Memory at a multiple of 64 bytes, not initialised.
std::shared_ptr<char> AlignedMemory(std::size_t bytes);

// INTERNAL if a tensor of the answer lacks bytes, or is not there or of another
// type or shape than `like`, if that is set.
absl::Status CheckAnswer(const ReceivedMessage& message, std::size_t index,
                         const absl::optional<TensorView>& like);

// INTERNAL if one of the answer's first `tensors` lies in shared memory for
// which the request names no place.
absl::Status CheckPlaces(const ReceivedMessage& answer, std::size_t tensors,
                         const google::protobuf::Message& request);

// Copies tensor i to into[i], or, if that is unset, to memory of the result's
// own, which is one block for all. INTERNAL if a tensor lacks bytes, or is not
// there or of another type or shape than like[i]; `like` may be empty, and its
// bytes are not looked at. INVALID_ARGUMENT if the bytes of a tensor are not
// exactly as many as the memory that was given for it.
absl::StatusOr<ReceivedTensors> TakeTensors(
    const ReceivedMessage& message, absl::Span<const Output> into,
    absl::Span<const absl::optional<TensorView>> like = {});

// The result of a call that gives one tensor.
TensorResult OnlyTensor(ReceivedTensors tensors);

// INVALID_ARGUMENT if `output` is not as large as `tensor`, or if there is no
// tensor. It is for calls whose result is as large as the tensor. Without this
// check a wrong size would be found only after the work, and an output for a
// tensor that is not given would never be found.
absl::Status CheckOutput(absl::string_view name,
                         const absl::optional<TensorView>& tensor,
                         const Output& output);

}  // namespace posenc
