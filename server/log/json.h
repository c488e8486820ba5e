// Text of anybody in lines of the log.

#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace posenc::server {

// Appends `text` as a JSON string with its quotes, whatever bytes it has:
// what is no UTF-8 becomes U+FFFD, control characters are escaped, and of a
// text longer than `most_bytes` the rest becomes "...".
void AppendJsonString(absl::string_view text, std::size_t most_bytes,
                      std::string* out);

}  // namespace posenc::server
