// The factors by which xPos (arXiv:2212.10554) multiplies the pairs of a head.

#pragma once

#include <cmath>
#include <cstdint>

#include "core/rope/spec.h"

namespace posenc::core {

// The defaults are the values of xPos's paper.
inline constexpr double kXPosScaleBase = 512;
inline constexpr double kXPosGamma = 0.4;

// Greatest |ln| of a valid xPos factor. Up to this limit, the factor is a
// normal float32 number (e^-87.3 to e^88.7).
inline constexpr double kMaxXPosExponent = 87;

// Returns ln((i / pairs + gamma) / (1 + gamma)), for pair i.
inline long double XPosLogZeta(const XPos& xpos, std::int64_t i,
                               std::int64_t pairs) {
  const long double gamma = xpos.gamma.value_or(kXPosGamma);
  return std::log((static_cast<long double>(i) / pairs + gamma) / (1 + gamma));
}

}  // namespace posenc::core
