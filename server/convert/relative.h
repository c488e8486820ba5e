// Reads relative encodings of requests: biases and scores.

#pragma once

#include "absl/status/statusor.h"
#include "core/relative/bias.h"
#include "core/relative/score.h"
#include "posenc/v1/relative.pb.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// Tensors of the results point into the message, or into `owned`.

absl::StatusOr<core::BiasArgs> ReadBias(const v1::BuildBiasRequest& request,
                                        OwnedElements* owned);

// Reads all fields except the borrowed tensors q and k.
absl::StatusOr<core::ScoreArgs> ReadScore(
    const v1::ScoreRelativeRequest& request, OwnedElements* owned);

}  // namespace posenc::server
