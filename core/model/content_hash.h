// Identifies a rotation: equal hashes, equal rotations.
//
// SHA-256, lower-case hex, of what decides the rotation (slice, pairings, axes,
// frequencies, amplitude, xPos, sign, precision), in the canonical form that
// content_hash.cc describes; not of how it was spelled.

#pragma once

#include <string>

#include "core/rope/frequencies.h"

namespace posenc::core {

std::string ContentHash(const ResolvedRope& rope);

}  // namespace posenc::core
