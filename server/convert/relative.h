// Relative encodings of requests: biases and scores.

#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "core/relative/bias.h"
#include "core/relative/score.h"
#include "posenc/v1/relative.pb.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// Arguments whose tensors borrow from the message, or from those here.
struct InputBias {
  core::BiasArgs args;
  InputTensors tensors;
};
absl::StatusOr<InputBias> ReadBias(const v1::BuildBiasRequest& request);

struct InputScore {
  core::ScoreArgs args;
  InputTensors tensors;
};
// Without q and k.
absl::StatusOr<InputScore> ReadScore(const v1::ScoreRelativeRequest& request);

}  // namespace posenc::server
