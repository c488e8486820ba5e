// The verdicts of `posenc check`. client/check evaluates the rotation in long
// double, and every element must be within the error that the contract allows.
// Scores must depend only on distances.

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
  // cancel, at 1/16 of their sum; with repositions, which rotate errors into
  // the other channel, at the pair's length.
  double max_error_ulps = 0;
  double max_error_of_bound = 0;  // largest error / its bound
};

// Compares `after` with `before` rotated forward, token t at start + t. The
// bounds allow for `repositions` later moves, which each round again.
// UNIMPLEMENTED for encodings that are not checked.
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
// rotated from another start. They may differ by the rounding to the dtype.
absl::StatusOr<ScoreCheck> CheckScores(const check::HeadsView& q,
                                       const check::HeadsView& k,
                                       const check::HeadsView& moved_q,
                                       const check::HeadsView& moved_k);

}  // namespace posenc::cli
