// A request message as gRPC received it: bytes in slices, never copied.
//
// Everything that reads a request sees its bytes as const. Results may be
// written over them only if nobody else reads them, and only through
// Writable(), which hands out the slices that hold a given part. There is one
// such reader: a client in the same process lends its own memory to the server
// without a copy, so the bytes of an in-process call are never writable.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/runtime/pieces.h"
#include "grpcpp/support/slice.h"
#include "server/memory/writable_slice.h"

namespace posenc::server {

class RequestMessage {
 public:
  // Most tensors lie in one slice or two.
  using WritableSlices = absl::InlinedVector<WritableSlice, 2>;

  // Whoever answers for the memory of what is made of a message.
  class Claimer {
   public:
    // What is made of a message of `message_bytes` takes `bytes` altogether,
    // beside the message itself. RESOURCE_EXHAUSTED if there is no room.
    virtual absl::Status ClaimMade(std::int64_t bytes,
                                   std::int64_t message_bytes) = 0;

   protected:
    ~Claimer() = default;
  };

  RequestMessage() = default;
  // exclusive: nobody else holds these slices. claimer: outlives the step that
  // takes the message in; null: nobody counts.
  RequestMessage(std::vector<grpc::Slice> slices, bool exclusive,
                 Claimer* claimer = nullptr);

  // Bytes of the message as it came, whether or not it was cleared since.
  std::size_t bytes() const { return bytes_; }

  // The message's bytes in order. The spans are valid as long as this object
  // holds the slices and stays where it is.
  absl::InlinedVector<absl::Span<const char>, 4> pieces() const;

  // A copy of them all.
  std::string Joined() const;

  // Whether Writable() may be called: `part` is a part of this message, or lies
  // wholly elsewhere, and nobody else reads the message.
  bool IsWritable(const core::ConstPieces& part) const;

  // The slices that hold `part`. Requires IsWritable(part). The caller must not
  // read `part` as input after it has written there; parts that do not overlap
  // do not disturb each other.
  WritableSlices Writable(const core::ConstPieces& part) const;

  // To be called before memory is taken for what is made of the message, while
  // the message is taken in (CallHandler::Receive()). See Claimer.
  absl::Status ClaimMore(std::int64_t bytes) {
    made_ += bytes;
    if (claimer_ == nullptr) return absl::OkStatus();
    return claimer_->ClaimMade(made_, static_cast<std::int64_t>(bytes_));
  }

  // So much of that memory is free again.
  void GiveBack(std::int64_t bytes) { ClaimMore(-bytes).IgnoreError(); }

  // Lets go of the slices.
  void Clear() { slices_.clear(); }

 private:
  std::vector<grpc::Slice> slices_;
  std::size_t bytes_ = 0;
  bool exclusive_ = false;
  Claimer* claimer_ = nullptr;
  std::int64_t made_ = 0;
};

}  // namespace posenc::server
