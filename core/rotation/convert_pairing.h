// Reorders the rows of projection weights or biases so that a checkpoint for
// one pairing works with the other pairing.
//
//   interleaved to half-split, in every head's rotated slice of d rows:
//   out[i] = in[2i], out[i + d/2] = in[2i + 1]
//
// Scores q . k are unchanged if q and k are both converted. Rows of any
// floating dtype are copied bit for bit.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/rope/spec.h"

namespace posenc::core {

struct ConvertPairingArgs {
  Pairing old_pairing = Pairing::kUnspecified;
  Pairing new_pairing = Pairing::kUnspecified;
  std::int32_t heads = 0;
  std::int32_t rotary_dim = 0;  // 0: the whole head
  RotarySlice slice = RotarySlice::kLeading;
};

// Checks the arguments that can be checked without the weight.
// PairingRows::Create() also checks these arguments.
absl::Status CheckConvertPairing(const ConvertPairingArgs& args);

// Maps each row of the result to its row of the weight.
class PairingRows {
 public:
  // The weight has the shape [heads * head_dim, ...]. Errors name fields such
  // as "old_pairing", "heads" and "weight.shape".
  static absl::StatusOr<PairingRows> Create(const ConvertPairingArgs& args,
                                            Dtype dtype, const Shape& shape);

  std::int64_t rows() const { return rows_; }
  std::size_t row_bytes() const { return row_bytes_; }
  std::int64_t Source(std::int64_t row) const;

 private:
  PairingRows() = default;

  bool to_half_split_ = false, same_ = false;
  std::int64_t rows_ = 0, head_dim_ = 0;
  std::int64_t first_ = 0, rotated_ = 0;  // the slice of a head
  std::size_t row_bytes_ = 0;
};

}  // namespace posenc::core
