// A curve as text, for a terminal of 80 columns.

#pragma once

#include <string>

#include "absl/types/span.h"

namespace posenc::cli {

// Draws `values` from left to right. If there are more values than columns, a
// column shows the mean of its share. The y axis has its ends labelled, the x
// axis carries `first_x` and `last_x`. Every line ends with a newline. `values`
// are finite and not empty.
std::string Plot(absl::Span<const double> values, const std::string& first_x,
                 const std::string& last_x);

}  // namespace posenc::cli
