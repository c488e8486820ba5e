// Text for messages: foreign words on one line, the distance to a known word
// for suggestions, and numbers as people write them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace posenc::core {

// Returns `text` with its control characters escaped, so that it prints as one
// line. A result of more than `most` bytes is cut between characters and ends
// in "...".
std::string OneLine(absl::string_view text,
                    std::size_t most = std::string::npos);

// Returns how many changes of one letter turn `a` into `b`. An exchange of two
// neighbours counts as one (Damerau 1964, optimal string alignment).
int EditDistance(absl::string_view a, absl::string_view b);

// "64MiB": a number of bytes as flags of posencd take it, with the largest unit
// that leaves it whole.
std::string SizeText(std::int64_t bytes);

// "500000" where NumberText has "5e+05"; else the same.
std::string PlainNumber(double value);

}  // namespace posenc::core
