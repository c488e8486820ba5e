// Request id and trace context of a call, for logs and traces of client and
// server.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/client_context.h"
#include "posenc/client.h"

namespace posenc {

// Returns 128 random bits in hexadecimal, unique in practice.
std::string RandomId();

// Adds request id and traceparent to a call's metadata, and returns the id. An
// empty `request_id` becomes a random id. INVALID_ARGUMENT for text that is not
// printable ASCII or is too long.
absl::StatusOr<std::string> AddIdentity(const std::string& request_id,
                                        const std::string& traceparent,
                                        grpc::ClientContext* context);

}  // namespace posenc
