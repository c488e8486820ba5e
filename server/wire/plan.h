// Turns a checked call into a response whose tensors are computed where gRPC
// will read them: into memory of their own, or over the request's bytes.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/calls/call.h"
#include "server/wire/session.h"

namespace posenc::server {

// request: what the call borrows, besides what it keeps. message: the
// request's, whose slices the call's inputs point into; null where they point
// elsewhere. fields: the serialized small fields of the response, which stand
// first.
absl::StatusOr<std::unique_ptr<PlannedResponse>> PlanResponse(
    TensorCall call, std::shared_ptr<const void> request,
    const RequestMessage* message, std::string fields, std::int64_t limit);

// A response whose bytes are there already.
std::unique_ptr<PlannedResponse> ReadyResponse(const std::string& bytes);

}  // namespace posenc::server
