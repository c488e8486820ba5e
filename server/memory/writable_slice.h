// A gRPC slice whose bytes may be written.
//
// No other code reads the bytes of a WritableSlice yet. Either the server has
// allocated them for a response, or the server is the only owner of the request
// that contains them. Only this class makes a slice's const bytes writable.

#pragma once

#include <cstddef>
#include <utility>

#include "grpcpp/support/slice.h"

namespace posenc::server {

class WritableSlice {
 public:
  // The caller promises that no other code reads the slice's bytes.
  static WritableSlice Own(grpc::Slice slice) {
    return WritableSlice(std::move(slice));
  }

  // The pointer is valid while this object does not move, because gRPC keeps
  // the bytes of a small slice in the object itself.
  char* data() {
    return const_cast<char*>(reinterpret_cast<const char*>(slice_.begin()));
  }
  std::size_t size() const { return slice_.size(); }

  // Returns the slice for sending. After this call, the bytes must not change.
  const grpc::Slice& slice() const { return slice_; }

 private:
  explicit WritableSlice(grpc::Slice slice) : slice_(std::move(slice)) {}

  grpc::Slice slice_;
};

}  // namespace posenc::server
