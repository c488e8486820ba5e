// Messages with tensors, without a copy of the tensors' bytes.
//
// In a request, the bytes are lent to gRPC (loans.h), which sends them from the
// caller's memory. In a response, the bytes stay in gRPC's slices until they
// are copied, once, to their destination. Only the small fields go through the
// generated code.

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
#include "client/cpp/tensors/loans.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "posenc/messages.h"
#include "posenc/wire/split.h"

namespace posenc {

// A request's field of type posenc.v1.Tensor. In the contract, tensors have the
// highest field numbers of a message, so that they come last on the wire.
struct TensorField {
  int number;
  const TensorView* view;
};

// Returns whether a tensor has the number of bytes that its dtype and shape
// imply. Also returns false for a dtype or shape that the server must refuse.
bool IsWhole(const TensorView& view);

// Returns the size on the wire of `message` with these tensors, which are not
// set in it.
std::int64_t MessageBytes(const google::protobuf::Message& message,
                          absl::Span<const TensorField> tensors);

// Writes `message` with these tensors as protobuf would. The bytes of tensors
// of 64 KiB and more are lent, not copied: they must not change until gRPC has
// returned them to `loans`.
grpc::ByteBuffer FrameMessage(const google::protobuf::Message& message,
                              absl::Span<const TensorField> tensors,
                              Loans* loans);

// Writes a message of a byte stream, which has only `data`. If `loans` is null,
// the bytes are copied.
grpc::ByteBuffer FrameData(absl::Span<const char> data, Loans* loans);

// Sets a tensor's dtype and shape in `message`, but not its bytes. Returns the
// tensor of the message.
v1::Tensor* SetForm(const TensorField& tensor,
                    google::protobuf::Message* message);

// Reads the bytes of a received tensor from front to back.
class TensorReader {
 public:
  // Borrows the bytes.
  explicit TensorReader(const wire::BorrowedBytes& bytes)
      : pieces_(bytes.pieces) {}

  // Copies the next `size` bytes, which must exist. `to` may be the address of
  // these bytes, because in-process channels pass the caller's own memory.
  void Read(std::size_t size, char* to);

 private:
  absl::Span<const absl::Span<const char>> pieces_;
  std::size_t offset_ = 0;  // bytes of the first piece that were read
};

// A response before the bytes of its tensors are copied. It keeps gRPC's slices
// alive, and borrows the message that was parsed from them.
class ReceivedMessage {
 public:
  // Parses the buffer into `message`, except the bytes of the tensors with the
  // field numbers `numbers`. The number wire::kOwnData means the field `data`
  // of `message` itself. INTERNAL if the buffer does not hold such a message.
  static absl::StatusOr<ReceivedMessage> Parse(
      const grpc::ByteBuffer& buffer, std::vector<int> numbers,
      google::protobuf::Message* message);

  // `index` is the index in `numbers`. Returns dtype and shape; nullptr if the
  // message does not have that tensor.
  const v1::Tensor* tensor(std::size_t index) const;
  std::string name(std::size_t index) const;
  // Returns the name of a tensor's output in errors: the contract's field for
  // the place of this output, such as q_output.
  std::string output_name(std::size_t index) const;
  const wire::BorrowedBytes& bytes(std::size_t index) const {
    return bytes_[index];
  }

 private:
  std::vector<int> numbers_;
  const google::protobuf::Message* message_ = nullptr;
  // The memory that `bytes_` points into.
  std::vector<grpc::Slice> slices_;
  absl::InlinedVector<wire::BorrowedBytes, 2> bytes_;
};

// Tensors that were copied out of a response. Tensors that the response does
// not have are unset.
struct ReceivedTensors {
  std::vector<absl::optional<TensorView>> views;
  // Keeps the tensors alive that are not in the caller's memory.
  std::shared_ptr<const void> owner;
};

// A tensor of a unary response, and the memory for it.
struct WantedTensor {
  int field = 0;  // number of the tensor's field
  Output into;
  // The type and shape that the tensor must have; unset if they are not known.
  // The server writes the tensor to shared memory only if type and shape are
  // known and `into` has the tensor's size.
  absl::optional<TensorView> like;
};

// Allocates uninitialised memory that is aligned to 64 bytes.
std::shared_ptr<char> AlignedMemory(std::size_t bytes);

// Returns INTERNAL if a tensor of the answer lacks bytes, or if `like` is set
// and the tensor is missing or has another type or shape.
absl::Status CheckAnswer(const ReceivedMessage& message, std::size_t index,
                         const absl::optional<TensorView>& like);

// Returns INTERNAL if one of the answer's first `tensors` tensors lies in
// shared memory although the request names no place for it.
absl::Status CheckPlaces(const ReceivedMessage& answer, std::size_t tensors,
                         const google::protobuf::Message& request);

// Copies tensor i of the message to the output of wanted[i]. If that output is
// unset, copies the tensor to memory that the result owns, in one block for all
// such tensors. INTERNAL if CheckAnswer() refuses the tensor. INVALID_ARGUMENT
// if an output does not have exactly the size of its tensor.
absl::StatusOr<ReceivedTensors> TakeTensors(
    const ReceivedMessage& message, absl::Span<const WantedTensor> wanted);

// Returns the result of a call with one tensor.
absl::StatusOr<TensorResult> ResultOf(absl::StatusOr<ReceivedTensors> tensors);

// Returns INVALID_ARGUMENT if `output` is set and `tensor` is unset or has
// another size. This check is for calls whose result has the size of the
// tensor. Without this check, a wrong size would be found only after the
// server's work, and an output without a tensor would never be found.
absl::Status CheckOutput(absl::string_view name,
                         const absl::optional<TensorView>& tensor,
                         const Output& output);

}  // namespace posenc
