// BuildBias and ScoreRelative.

#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/call.h"

namespace posenc::server {

// Hands over tiles in row-major order, each a message of at most `limit` bytes
// in memory that the next one takes over. `write` is false where the caller is
// gone.
absl::Status AnswerBuildBias(
    const v1::BuildBiasRequest& request, std::int64_t limit, StopCheck stop,
    absl::FunctionRef<bool(const v1::BuildBiasResponse&)> write);

absl::StatusOr<TensorCall> PrepareScoreRelative(
    const v1::ScoreRelativeRequest& request, const TakenTensors& taken);

}  // namespace posenc::server
