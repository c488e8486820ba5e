// BuildTable and AddEncoding.

#pragma once

#include "absl/status/statusor.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/call.h"

namespace posenc::server {

// Sets the response's amplitude.
absl::StatusOr<TensorCall> PrepareBuildTable(
    const v1::BuildTableRequest& request, v1::BuildTableResponse* response);

absl::StatusOr<TensorCall> PrepareAddEncoding(
    const v1::AddEncodingRequest& request);

}  // namespace posenc::server
