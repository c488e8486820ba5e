// Reads relative encodings of requests: biases and scores.

#pragma once

#include "absl/status/statusor.h"
#include "core/relative/bias.h"
#include "core/relative/score.h"
#include "posenc/v1/relative.pb.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// Arguments of core whose tensors point into the message, or into `tensors`.
struct InputBias {
  core::BiasArgs args;
  InputTensors tensors;
};
absl::StatusOr<InputBias> ReadBias(const v1::BuildBiasRequest& request);

struct InputScore {
  core::ScoreArgs args;
  InputTensors tensors;
};
// Reads all fields except the borrowed tensors q and k.
absl::StatusOr<InputScore> ReadScore(const v1::ScoreRelativeRequest& request);

}  // namespace posenc::server
