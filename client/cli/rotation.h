// An independent rotation, in long double, straight from the formula of
// posenc.v1.RopeSpec and the frequencies that ResolveRope gave: it shares no
// code with the core.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/client.h"

namespace posenc::cli {

// A tensor of heads in any layout, as [batch][token][head][channel].
struct HeadsView {
  static absl::StatusOr<HeadsView> Of(const TensorView& tensor,
                                      v1::Layout layout);

  std::int64_t Offset(std::int64_t b, std::int64_t s, std::int64_t h) const {
    return b * batch_stride + s * token_stride + h * head_stride;
  }

  TensorView tensor;
  std::int64_t batch = 1, tokens = 0, heads = 0, head_dim = 0;
  std::int64_t batch_stride = 0, token_stride = 0, head_stride = 0;
};

struct RotationCheck {
  std::int64_t elements = 0;
  std::int64_t wrong = 0;  // outside of their bound
  std::int64_t first_wrong = -1;
  // Largest error, in ulps of the dtype at the result, or at 1/16 of the
  // products' sum where they cancel to less than that; at the pair's length
  // where repositions turned an error into the other channel.
  double max_error_ulps = 0;
  double max_error_of_bound = 0;  // largest error / its bound
};

// Compares `after` with `before` rotated forward, token t at start + t, and
// moved there in so many repositions after the rotation, each of which rounds.
absl::StatusOr<RotationCheck> CheckRotation(const v1::ResolveRopeResponse& rope,
                                            const HeadsView& before,
                                            const HeadsView& after,
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
// rotated elsewhere. They may differ by what rounding to the dtype allows.
absl::StatusOr<ScoreCheck> CheckScores(const HeadsView& q, const HeadsView& k,
                                       const HeadsView& moved_q,
                                       const HeadsView& moved_k);

}  // namespace posenc::cli
