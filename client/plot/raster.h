// A scene as pixels, with lines whose edges are smooth.

#pragma once

#include <cstdint>
#include <vector>

#include "client/plot/scene.h"

namespace posenc::plot {

// width * height pixels r, g, b, rows from the top.
std::vector<std::uint8_t> Rasterize(const Scene& scene);

}  // namespace posenc::plot
