// Converts untrusted text to valid UTF-8 for protobuf's string fields.

#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace posenc::server {

// Returns `text` as valid UTF-8 of at most `limit` bytes. `instead` replaces
// each byte that is not UTF-8, and "..." ends a text that was cut.
std::string Utf8(absl::string_view text, std::size_t limit,
                 absl::string_view instead = "?");

}  // namespace posenc::server
