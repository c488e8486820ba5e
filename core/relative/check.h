// Checks of arguments, for biases and for scores.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/tensor.h"

namespace posenc::core {

// Bounds the scratch memory and the time of one product. Heads of models have
// up to a few hundred channels.
inline constexpr std::int64_t kMaxWidth = std::int64_t{1} << 16;

// An extent, and its name in the proto's comment, if it has one. Size -1 means
// any size of at least 1.
struct NamedExtent {
  std::string name;
  std::int64_t size = -1;
};

// Checks that a tensor is present and floating, and has these extents. Errors:
// FieldRequired if it is absent; FieldInvalid "<field>.dtype"; kShapeMismatch
// "<field>.shape".
absl::Status CheckTensor(absl::string_view field,
                         const std::optional<ConstTensorView>& tensor,
                         const std::vector<NamedExtent>& extents);

// Checks that an extent of `field`'s shape is at most kMaxWidth.
absl::Status CheckWidth(absl::string_view field, absl::string_view name,
                        std::int64_t width);

absl::Status CheckFloating(absl::string_view field, Dtype dtype);

// Checks that a count is at least 1. Returns FieldRequired for 0, because an
// unset field is also 0.
absl::Status CheckCount(absl::string_view field, std::int64_t count);

// More heads than any model has. A tile of a bias has all heads, so this limit
// keeps a tile small enough to be computed within a millisecond.
inline constexpr std::int64_t kMaxHeads = 65536;

// Checks the field `heads`: at least 1, and at most kMaxHeads.
absl::Status CheckHeads(std::int64_t heads);

// Checks that positions start .. start + length - 1 are within +-2^31, so that
// distances are at most 2^32.
absl::Status CheckPositions(absl::string_view start_field, std::int64_t start,
                            std::int64_t length);

}  // namespace posenc::core
