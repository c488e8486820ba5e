// BuildPositions.

#pragma once

#include "absl/status/statusor.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/call.h"

namespace posenc::server {

// Sets the response's other fields.
absl::StatusOr<TensorCall> PrepareBuildPositions(
    const v1::BuildPositionsRequest& request,
    v1::BuildPositionsResponse* response);

}  // namespace posenc::server
