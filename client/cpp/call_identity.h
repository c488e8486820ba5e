// What tells one call from others, in logs and traces on both sides.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/client_context.h"
#include "posenc/client.h"

namespace posenc {

// 128 random bits in hexadecimal: no two calls of anybody's have the same.
std::string RandomId();

// Adds request id and traceparent to a call's metadata, and returns the id. A
// random id is made if `request_id` is empty. INVALID_ARGUMENT for text that no
// header can carry.
absl::StatusOr<std::string> AddIdentity(const std::string& request_id,
                                        const std::string& traceparent,
                                        grpc::ClientContext* context);

}  // namespace posenc
