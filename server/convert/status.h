// From the core's errors to what gRPC sends.

#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace posenc::server {

// Code and message as they are (message: valid UTF-8, at most 1024 bytes) and,
// where the status was made with core/error.h, google.rpc.Status in the error
// details: ErrorInfo; BadRequest for INVALID_ARGUMENT and OUT_OF_RANGE with a
// field; RetryInfo for kOverloaded.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace posenc::server
