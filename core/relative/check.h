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

// The most channels of a head, and the most hidden units of FIRE. The limit
// bounds scratch memory and the time of one product. Heads of models have up to
// a few hundred channels.
inline constexpr std::int64_t kMaxWidth = std::int64_t{1} << 16;

// Checks that an extent of `field`'s shape is at most kMaxWidth.
absl::Status CheckWidth(absl::string_view field, absl::string_view name,
                        std::int64_t width);

// Checks that a count is at least 1. Returns FieldRequired for 0, because an
// unset field is also 0.
absl::Status CheckCount(absl::string_view field, std::int64_t count);

// The greatest number of heads; no model has so many. A tile of a bias has all
// heads, so this limit keeps a tile small enough to be computed within a
// millisecond.
inline constexpr std::int64_t kMaxHeads = 65536;

// Checks the field `heads`: at least 1, and at most kMaxHeads.
absl::Status CheckHeads(std::int64_t heads);

}  // namespace posenc::core
