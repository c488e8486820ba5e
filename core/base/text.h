// Text for messages: untrusted text on one line, the distance to a known word
// for suggestions, and numbers as people write them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace posenc::core {

// Returns `text` with its control characters escaped, so that the text prints
// as one line. A result of more than `most` bytes is cut between characters and
// ends in "...".
std::string OneLine(absl::string_view text,
                    std::size_t most = std::string::npos);

// Returns the least number of one-letter changes that turn `a` into `b`. An
// exchange of two neighbouring letters counts as one change (Damerau 1964,
// optimal string alignment).
int EditDistance(absl::string_view a, absl::string_view b);

// Returns the text of a size with the largest unit that gives a whole number,
// such as "64MiB" or "1000 bytes".
std::string SizeText(std::int64_t bytes);

// Formats a number or a position like NumberText, but writes whole numbers
// below 1e15 with all digits: "500000" instead of "5e+05".
std::string PlainNumber(double value);

}  // namespace posenc::core
