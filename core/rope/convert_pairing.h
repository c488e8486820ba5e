// Reorders the rows of projection weights or biases so that a checkpoint for
// one pairing works with the other.
//
//   interleaved to half-split, in every head's rotated slice of d rows:
//   out[i] = in[2i], out[i + d/2] = in[2i + 1]
//
// Scores q . k are unchanged where q and k are both converted. Rows are moved,
// never computed with: any floating dtype, bit for bit.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/rope/spec.h"
#include "core/tensor.h"

namespace posenc::core {

struct ConvertPairingArgs {
  Pairing old_pairing = Pairing::kUnspecified;
  Pairing new_pairing = Pairing::kUnspecified;
  std::int32_t heads = 0;
  std::int32_t rotary_dim = 0;  // 0: the head
  RotarySlice slice = RotarySlice::kLeading;
};

// weight: [heads * head_dim, ...]; out: the same dtype and shape, elsewhere.
// Field paths: "old_pairing", "heads", "rotary_dim", "weight.shape", ...
absl::Status ConvertPairing(const ConvertPairingArgs& args,
                            const ConstTensorView& weight,
                            const TensorView& out);

}  // namespace posenc::core
