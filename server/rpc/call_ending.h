// How a call ends, in the form in which gRPC takes it. Many calls may end with
// the same one: past capacity, most of a server's work is refusing.

#pragma once

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "grpc/grpc.h"
#include "grpcpp/support/status.h"

namespace posenc::server {

class CallEnding final {
 public:
  // With OK.
  CallEnding() = default;
  // pushback: clients' retries are told to wait.
  CallEnding(const grpc::Status& status, bool pushback);
  ~CallEnding();
  CallEnding(const CallEnding& other);
  CallEnding& operator=(const CallEnding&) = delete;

  grpc_status_code code() const { return code_; }
  // What is sent with it. gRPC takes references of its own.
  const absl::InlinedVector<grpc_metadata, 3>& trailers() const {
    return trailers_;
  }
  // The text, where it cannot be a trailer of ours; null if there is none.
  const grpc_slice* details() const {
    return GRPC_SLICE_IS_EMPTY(details_) ? nullptr : &details_;
  }

 private:
  // `name` is a constant.
  void Add(const char* name, absl::string_view value);

  grpc_status_code code_ = GRPC_STATUS_OK;
  absl::InlinedVector<grpc_metadata, 3> trailers_;
  grpc_slice details_ = grpc_empty_slice();
};

}  // namespace posenc::server
