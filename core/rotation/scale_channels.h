// Multiplies the channels of a head that do not rotate.

#pragma once

#include <cstddef>

#include "core/rotation/head_rotation.h"

namespace posenc::core {

// Sets dst[i] to src[i] * scale for the rotation's pass_width channels, in
// float32 (float64 for float64), rounded once. dst is equal to src, or the two
// do not overlap.
void ScaleChannels(const HeadRotation& rotation, const std::byte* src,
                   std::byte* dst, double scale);

}  // namespace posenc::core
