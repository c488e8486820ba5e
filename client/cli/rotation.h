// The verdicts of `posenc check`: whether every element of a file is within the
// error that the contract allows of the rotation that client/check evaluates in
// long double, and whether scores depend on distances alone.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "client/check/rotated_heads.h"
#include "posenc/client.h"

namespace posenc::cli {

struct RotationCheck {
  std::int64_t elements = 0;
  std::int64_t wrong = 0;  // beyond their bound
  std::int64_t first_wrong = -1;
  // Largest error, in ulps of the dtype at the result. If the result's products
  // cancel, at 1/16 of their sum; if repositions turned errors into the other
  // channel, at the pair's length.
  double max_error_ulps = 0;
  double max_error_of_bound = 0;  // largest error / its bound
};

// Compares `after` with `before` rotated forward, token t at start + t. The
// bounds allow for `repositions` moves after the rotation, each of which rounds
// again. UNIMPLEMENTED for encodings that are not checked.
absl::StatusOr<RotationCheck> CheckRotation(const v1::ResolveRopeResponse& rope,
                                            const check::HeadsView& before,
                                            const check::HeadsView& after,
                                            std::int64_t start,
                                            int repositions);

struct ScoreCheck {
  std::int64_t samples = 0;
  std::int64_t wrong = 0;
  double max_difference = 0;
  double max_difference_of_bound = 0;
  double typical_score = 0;  // root mean square
};

// Compares sampled scores q . k of one rotation with those of the same tensors
// rotated from another start. They may differ by what rounding to the dtype
// allows.
absl::StatusOr<ScoreCheck> CheckScores(const check::HeadsView& q,
                                       const check::HeadsView& k,
                                       const check::HeadsView& moved_q,
                                       const check::HeadsView& moved_k);

}  // namespace posenc::cli
