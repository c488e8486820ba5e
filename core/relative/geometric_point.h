// Points of a geometric sequence, for buckets that grow with the distance.

#pragma once

#include <cstdint>

namespace posenc::core {

struct GeometricPoint {
  std::int64_t floor;
  bool exact;  // the point is an integer
};

// Returns first * (last / first)^(step / steps), truncated to an integer.
// Rounding errors never change this integer. Expects 1 <= first < last < 2^31,
// step >= 0, steps >= 1. For points beyond 2^32, the greatest distance, the
// result is {2^32, false}.
GeometricPoint FindGeometricPoint(std::int64_t first, std::int64_t last,
                                  std::int64_t step, std::int64_t steps);

}  // namespace posenc::core
