// PNG files, by libpng.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace posenc::plot {

// An image of width * height bytes r, g, b, rows from the top. INTERNAL with
// libpng's reason if it fails.
absl::StatusOr<std::string> RgbPng(int width, int height,
                                   absl::Span<const std::uint8_t> pixels);

// The same with one byte a pixel, an index into Cividis(); with `masked`, 0 is
// kMasked.
absl::StatusOr<std::string> CividisPng(int width, int height,
                                       absl::Span<const std::uint8_t> levels,
                                       bool masked = false);

}  // namespace posenc::plot
