// Letters as strokes, for pictures of pixels: SVG has fonts, and a PNG must not
// depend on which of them a machine has.

#pragma once

#include <string>
#include <vector>

#include "client/plot/scene.h"

namespace posenc::plot {

// The strokes of a text with `size` pixels a line that begins at the origin, on
// a baseline of y = 0. Each letter is 0.6 sizes wide. ASCII; others are boxes,
// one for each byte.
std::vector<std::vector<Point>> TextStrokes(const std::string& text,
                                            double size);

}  // namespace posenc::plot
