// A curve as text.

#pragma once

#include <string>

#include "absl/types/span.h"

namespace posenc::cli {

// Means of equal parts of `values`, from the left; below, the ends of the x
// axis. Lines end with a newline. `values` are finite and not empty.
std::string Plot(absl::Span<const double> values, const std::string& first_x,
                 const std::string& last_x);

}  // namespace posenc::cli
