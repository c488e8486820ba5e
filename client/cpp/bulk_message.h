// Messages with tensors. In requests their bytes are lent to gRPC, not copied;
// in responses they stay in gRPC's slices until they are copied, once, to where
// they are wanted.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

// Bytes of `message` with these tensors, which are not set in it.
std::int64_t MessageBytes(const google::protobuf::Message& message,
                          absl::Span<const TensorField> tensors);

// The same as protobuf would write it.
grpc::ByteBuffer FrameMessage(const google::protobuf::Message& message,
                              absl::Span<const TensorField> tensors,
                              const std::shared_ptr<const void>& owner,
                              Loans* loans);

// Copies of the tensors, for the generated stub.
void SetTensors(absl::Span<const TensorField> tensors,
                google::protobuf::Message* message);

// A response whose tensors' bytes have not been copied yet.
class ReceivedMessage {
 public:
  // Everything but the bytes of the fields `tensors` goes into `message`, which
  // is borrowed. INTERNAL where the buffer holds no such message.
  static absl::StatusOr<ReceivedMessage> Parse(
      const grpc::ByteBuffer& buffer, std::vector<int> tensors,
      google::protobuf::Message* message);

  // Of a message that was parsed as a whole.
  static ReceivedMessage Of(std::vector<int> tensors,
                            const google::protobuf::Message* message);

  // By index into `tensors`. nullptr where the message has none.
  const v1::Tensor* tensor(std::size_t index) const;
  std::size_t bytes(std::size_t index) const;

  // Copies bytes [offset, offset + size) of a tensor. They may go to where they
  // are: in-process channels pass the caller's memory around.
  void Copy(std::size_t index, std::size_t offset, std::size_t size,
            char* to) const;

 private:
  std::vector<int> numbers_;
  const google::protobuf::Message* message_ = nullptr;
  std::vector<grpc::Slice> slices_;
  wire::SplitMessage split_;  // no tensors where the message has their bytes
};

// Tensors copied out of a response.
struct TakenTensors {
  std::vector<absl::optional<TensorView>> views;
  std::shared_ptr<const void> owner;  // of what did not go to the caller's
};

// 64-byte aligned, not initialised.
std::shared_ptr<char> AlignedMemory(std::size_t bytes);

// Tensor i goes to into[i], or, where that is unset, to memory of its own, one
// block for all. INVALID_ARGUMENT where one does not fit.
absl::StatusOr<TakenTensors> TakeTensors(
    const ReceivedMessage& message,
    absl::Span<const absl::optional<absl::Span<char>>> into);

}  // namespace posenc
