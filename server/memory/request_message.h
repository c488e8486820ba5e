// A request message in the slices in which gRPC received it, without copies.
//
// Results may be written over the bytes only through Writable(), and only if no
// other code reads the bytes. A client in the same process may read them,
// because it lends its own memory to the server.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
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
  // Most tensors lie in one or two slices.
  using WritableSlices = absl::InlinedVector<WritableSlice, 2>;

  // Claims the memory for data that is made from a message.
  class Claimer {
   public:
    // Sets the claim for data that is made from a message. `bytes` is the size
    // of the data. `message_bytes` is the size of the message, which has a
    // separate claim. Returns RESOURCE_EXHAUSTED if the budget is too small.
    virtual absl::Status ClaimMade(std::int64_t bytes,
                                   std::int64_t message_bytes) = 0;

   protected:
    ~Claimer() = default;
  };

  RequestMessage() = default;
  // `exclusive` is true if no other code reads these slices. `claimer` must
  // outlive the step that receives the message. A null `claimer` claims
  // nothing.
  RequestMessage(std::vector<grpc::Slice> slices, bool exclusive,
                 Claimer* claimer = nullptr);

  // Returns the size of the received message, even after Clear().
  std::size_t bytes() const { return bytes_; }

  // Returns the message's bytes in order. The spans are valid until Clear() is
  // called or this object is moved.
  absl::InlinedVector<absl::Span<const char>, 4> pieces() const;

  // Returns a copy of all bytes.
  std::string Joined() const;

  // Returns whether Writable(part) may be called: whether `part` is in this
  // message, and no other code reads the message. `part` must be completely
  // inside or completely outside this message.
  bool IsWritable(const core::ConstPieces& part) const;

  // Returns the slices that hold `part`. Requires IsWritable(part). After the
  // caller has written to `part`, it must not read `part` as input. Parts that
  // do not overlap are independent.
  WritableSlices Writable(const core::ConstPieces& part) const;

  // Claims memory for data made from the message. Must be called before the
  // memory is allocated, during CallHandler::Receive() or the next
  // CallHandler::Next(). See Claimer.
  absl::Status ClaimMore(std::int64_t bytes) {
    made_ += bytes;
    if (claimer_ == nullptr) return absl::OkStatus();
    return claimer_->ClaimMade(made_, static_cast<std::int64_t>(bytes_));
  }

  // Releases `bytes` of the claim that ClaimMore() has made.
  void GiveBack(std::int64_t bytes) { ClaimMore(-bytes).IgnoreError(); }

  // Releases the slices.
  void Clear() { slices_.clear(); }

 private:
  std::vector<grpc::Slice> slices_;
  std::size_t bytes_ = 0;
  bool exclusive_ = false;
  Claimer* claimer_ = nullptr;
  std::int64_t made_ = 0;
};

}  // namespace posenc::server
