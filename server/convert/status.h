// Converts errors to gRPC's code and message, with google.rpc details.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace posenc::server {

// Keeps the code and the message. The message becomes valid UTF-8 of at most
// 1024 bytes. If the status was made with core/base/error.h, the details
// contain a google.rpc.Status with ErrorInfo. INVALID_ARGUMENT and OUT_OF_RANGE
// with a field also get BadRequest, and kOverloaded also gets RetryInfo. If the
// status has several faults, BadRequest lists as many as fit, and the message
// ends with the fields of the other faults.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Returns a name such as "ERROR_REASON_OVERLOADED", or "" without details.
std::string ReasonName(const absl::Status& status);

}  // namespace posenc::server
