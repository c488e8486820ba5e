// What the tests of position schemes share: images and videos.

#pragma once

#include <cstdint>

#include "core/position_schemes.h"

namespace posenc::core {

inline VisionGrid Vision(std::int64_t time, std::int64_t height,
                         std::int64_t width, std::int32_t merge = 0) {
  VisionGrid grid;
  grid.time = time;
  grid.height = height;
  grid.width = width;
  grid.spatial_merge_size = merge;
  return grid;
}

}  // namespace posenc::core
