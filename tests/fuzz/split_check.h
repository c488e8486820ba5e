// Compares the hand-written parser of bulk messages with the generated one.

#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace posenc::fuzz {

// Splits `message` as a request whose tensors are fields 14 and 15, cut into
// slices of `slice_bytes` (0: one). Returns what is wrong, or nothing:
// - if the generated parser refuses the message, the split fails or leaves a
//   rest that the generated parser refuses, too;
// - if it accepts, the split fails (the caller then parses it whole) or its
//   rest with the borrowed bytes is the same message.
std::string CheckSplit(absl::string_view message, std::size_t slice_bytes);

}  // namespace posenc::fuzz
