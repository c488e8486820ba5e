// Tensors of heads: the order of their dimensions, and the number and width of
// their heads. ApplyRope and Reposition use this code.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/tensor.h"
#include "core/rope/frequencies.h"

namespace posenc::core {

// Order of a tensor's dimensions. Each value has the same number as in
// posenc.v1.Layout. B is the batch, S and T are the tokens, H the heads, D the
// channels of a head.
enum class Layout { kBshd = 1, kBhsd = 2, kSbhd = 3, kThd = 4 };

// The name and rank of a layout, and the indices of its batch, token and head
// dimensions.
struct LayoutOrder {
  const char* name;
  int rank;
  int batch, token, head;  // batch is -1 for THD
};

// Returns FieldInvalid("layout") for an unknown layout.
absl::StatusOr<LayoutOrder> FindLayout(Layout layout);

// Extents of a tensor of heads.
struct HeadLayout {
  std::int64_t batch = 1, tokens = 0, heads = 0, head_dim = 0;

  bool empty() const { return batch == 0 || tokens == 0 || heads == 0; }
};

// Checks that heads of this dtype can be rotated. If `takes_int8`, int8 is also
// valid. Field path: "dtype".
absl::Status CheckHeadDtype(Dtype dtype, bool takes_int8);

// Checks a tensor's dtype with CheckHeadDtype(), and reads its extents. Field
// paths: "dtype", "shape".
absl::StatusOr<HeadLayout> ReadHeadLayout(const ConstTensorView& tensor,
                                          const LayoutOrder& order,
                                          bool takes_int8);

// Checks that `saturation` is kFinite or kNone if the dtype is FP8. Field path:
// "saturation". `name` is the name of the tensor.
absl::Status CheckSaturation(Saturation saturation, Dtype dtype,
                             absl::string_view name);

// Returns kShapeMismatch ("<name>.shape") if the encoding has frequencies for
// each head, and the tensor has a different number of heads.
absl::Status CheckHeadCount(const ResolvedRope& rope,
                            const ConstTensorView& tensor,
                            const HeadLayout& layout, absl::string_view name);

}  // namespace posenc::core
