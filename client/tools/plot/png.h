// Cells of a heat map as a PNG of 256 colours, which SVG embeds.

#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace posenc::plot {

// Returns a PNG of width * height pixels, rows from the top; each byte of
// `levels` is an index into Cividis().
std::string CividisPng(int width, int height,
                       absl::Span<const std::uint8_t> levels);

}  // namespace posenc::plot
