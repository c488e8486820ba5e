// Turns errors into what gRPC sends: a code, a message, and google.rpc details.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace posenc::server {

// Keeps the code and the message; the message becomes valid UTF-8 of at most
// 1024 bytes. If the status was made with core/error.h, the details hold a
// google.rpc.Status with ErrorInfo, with BadRequest for INVALID_ARGUMENT and
// OUT_OF_RANGE that name a field, and with RetryInfo for kOverloaded. What is
// wrong beside the first fault follows it in BadRequest, and the message ends
// with the fields.
grpc::Status ToGrpcStatus(const absl::Status& status);

// "ERROR_REASON_OVERLOADED" and the like; empty without details.
std::string ReasonName(const absl::Status& status);

}  // namespace posenc::server
