// Tensors of heads before and after a rotation, element by element beside the
// exact result in long double (on x86-64: 64 bits of significand).

#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/check/heads.h"
#include "client/check/rotation.h"
#include "posenc/client.h"

namespace posenc::check {

// A tensor in one of the contract's layouts. The bytes are the caller's.
struct HeadsView {
  // INVALID_ARGUMENT if the shape has not as many extents as the layout.
  static absl::StatusOr<HeadsView> Of(const TensorView& tensor,
                                      v1::Layout layout);

  TensorView tensor;
  HeadIndex index;
};

// A rotation whose angle depends on the token's position alone, not on axes or
// heads.
struct TokenRotation {
  // What a server resolved, for tokens with one position each. The frequencies
  // are the server's own, and their products with positions are rounded to 64
  // bits. UNIMPLEMENTED for encodings that are not checked.
  static absl::StatusOr<TokenRotation> Of(const v1::ResolveRopeResponse& rope,
                                          std::int64_t head_dim);

  std::vector<long double> frequencies;  // radians per position, by pair
  long double attention_factor = 1;
  PairLayout before;     // pairs of the input
  PairLayout after;      // pairs of the output; together the same channels
  bool reverse = false;  // turns by the negative angle (RopeSpec.reverse)
  // Bound on the relative error of angles: what the frequencies here may differ
  // from the server's, and rounding of the product.
  long double angle_error = 0;
};

struct RotatedElement {
  std::int64_t index;  // of the element in the tensors
  double actual;
  long double exact;
  // Channels outside of the pairs pass through: `exact` is the input then, and
  // its bytes must be the output's. Nothing below is set.
  bool passes_through = false;
  bool same_bytes = false;

  long double x = 0, y = 0;    // the pair before
  long double terms = 0;       // this element's x_terms or y_terms
  long double from_angle = 0;  // largest error due to angle_error
};

// Calls `visit` for the elements of every `token_step`-th token, head by head,
// until it returns false. `before` and `after` have one shape and dtype.
void VisitRotatedHeads(
    const TokenRotation& rotation, const HeadsView& before,
    const HeadsView& after,
    absl::FunctionRef<long double(std::int64_t token)> position,
    std::int64_t token_step,
    absl::FunctionRef<bool(const RotatedElement& element)> visit);

}  // namespace posenc::check
