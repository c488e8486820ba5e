// Identifies a rotation: rotations with equal hashes are equal. How the
// configuration spells the rotation does not affect the hash.
//
// The hash is the SHA-256, in lower-case hexadecimal, of the values below, one
// after the other. An integer is written as 8 bytes: two's complement, least
// significant byte first. A number is written as the 8 bytes of its IEEE 754
// float64 in the same byte order, and -0 as +0. A list is written as its length
// and then its elements. A client can recompute the hash from a response of
// ResolveRope.
//
//   integer  1, the version of this list
//   integer  1 if the layer does not rotate (nope): the list ends here; else 0
//   integer  rotary_dim
//   integer  slice: 1 leading, 2 trailing; 1 if the slice is known to be the
//            whole head. head_dim itself is not hashed.
//   integer  pairing: 1 half-split, 2 interleaved
//   integer  output_pairing: 1 or 2; if unset, the pairing
//   integer  1 for halves_per_axis, else 0
//   integer  1 for reverse, else 0
//   integer  angle_precision: 1 exact, 2 float32
//   number   amplitude (ResolvedRope::attention_factor)
//   integer  1 for xPos, then the numbers scale_base, gamma, center; else 0
//   integer  heads (0: the frequencies are the same for every head)
//   integer  frequency axes (1, unless angles are sums over axes)
//   list     of numbers: inv_freq, heads slowest, pairs fastest
//   list     of integers: the axis of each pair; empty if every axis is 0
//
// Base and scaling are hashed only through the frequencies. The softmax
// multiplier and the factor of queries are not part of the rotation.
//
// In Python, the values for unscaled rope with 4 half-split channels, base
// 10000 and one axis (inv_freq 1 and 0.01) are:
//
//   struct.pack("<9qd4q2dq", 1, 0, 4, 1, 1, 1, 0, 0, 1, 1.0, 0, 0, 1, 2,
//               1.0, 0.01, 0)

#pragma once

#include <string>

#include "core/rope/frequencies.h"

namespace posenc::core::interpretation {

std::string ContentHash(const ResolvedRope& rope);

}  // namespace posenc::core::interpretation
