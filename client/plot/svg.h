// A scene as SVG 1.1: its points are numbers in the text, for tests and screen
// readers, and heat maps are embedded PNGs, since each cell as an element of
// its own would be hundreds of megabytes.

#pragma once

#include <string>

#include "client/plot/scene.h"

namespace posenc::plot {

// A whole file. Coordinates have two decimals.
std::string ToSvg(const Scene& scene);

// Text with the five characters replaced that XML reserves, and without control
// characters, which XML cannot hold.
std::string EscapeXml(const std::string& text);

}  // namespace posenc::plot
