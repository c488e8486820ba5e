// Visits the elements of a tensor of heads before and after a rotation. The
// visitor also gets the exact result, which is computed in long double (on
// x86-64: 64 bits of significand).

#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/tools/check/heads.h"
#include "client/tools/check/rotation.h"
#include "posenc/client.h"

namespace posenc::check {

// A tensor in one of the contract's layouts. The view does not own the bytes.
struct HeadsView {
  // INVALID_ARGUMENT if shape and layout differ in their number of extents.
  static absl::StatusOr<HeadsView> Of(const TensorView& tensor,
                                      v1::Layout layout);

  TensorView tensor;
  HeadIndex index;
};

// A rotation whose angle depends only on the token's position, not on axes or
// heads.
struct TokenRotation {
  // Returns the rotation of an encoding that a server resolved, for tokens with
  // one position each. The result has the server's frequencies; products of
  // frequency and position are rounded to a significand of 64 bits. Returns
  // UNIMPLEMENTED for encodings that this code cannot check.
  static absl::StatusOr<TokenRotation> Of(const v1::ResolveRopeResponse& rope,
                                          std::int64_t head_dim);

  std::vector<long double> frequencies;  // radians per position, by pair
  long double attention_factor = 1;
  PairLayout before;     // pairs of the input
  PairLayout after;      // pairs of the output, in the same channels
  bool reverse = false;  // rotates by the negative angle (RopeSpec.reverse)
  // Bound on the relative error of angles. It covers the difference between
  // `frequencies` and the server's frequencies, and the rounding of the
  // product.
  long double angle_error = 0;
};

struct RotatedElement {
  std::int64_t index;  // of the element in the tensors
  double actual;
  long double exact;
  std::int64_t pair = -1;  // of the element; -1: the channel passes through
  // True for a channel outside of the pairs, which passes through. `exact` is
  // then the input, and the output must have the same bytes. The members after
  // same_bytes are not set for such a channel.
  bool passes_through = false;
  bool same_bytes = false;

  long double x = 0, y = 0;    // the pair before the rotation
  long double terms = 0;       // this element's x_terms or y_terms
  long double from_angle = 0;  // largest error due to angle_error
};

// Calls `visit` for the elements of every `token_step`-th token, head by head,
// until `visit` returns false. `before` and `after` must have the same shape
// and dtype.
void VisitRotatedHeads(
    const TokenRotation& rotation, const HeadsView& before,
    const HeadsView& after,
    absl::FunctionRef<long double(std::int64_t token)> position,
    std::int64_t token_step,
    absl::FunctionRef<bool(const RotatedElement& element)> visit);

}  // namespace posenc::check
