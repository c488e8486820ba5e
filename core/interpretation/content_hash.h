// Identifies a rotation: equal hashes mean equal rotations, in whatever
// spelling they were given.
//
// SHA-256, in lower-case hexadecimal, of these values, one after the other.
// Each integer is 8 bytes, two's complement, least significant byte first; each
// number the 8 bytes of its IEEE 754 float64 in the same order, -0 as +0; a
// list is its length and then its elements. So anybody can recompute the hash
// from the response of ResolveRope.
//
//   integer  1, the version of this form
//   integer  1 if the layer does not rotate (nope), and nothing more; else 0
//   integer  rotary_dim
//   integer slice: 1 leading, 2 trailing. A slice as wide as the head is both,
//   and counts as leading if head_dim is known. head_dim itself is not hashed.
//   integer  pairing: 1 half-split, 2 interleaved
//   integer  output_pairing, likewise; the pairing if it is the same
//   integer  1 for halves_per_axis, else 0
//   integer  1 for reverse, else 0
//   integer  angle_precision: 1 exact, 2 float32
//   number   amplitude (ResolvedRope::attention_factor)
//   integer  1 for xPos and then numbers scale_base, gamma, center; else 0
//   integer  heads (0: the frequencies are the same for every head)
//   integer  frequency axes (1, unless angles are sums over axes)
//   list     of numbers: inv_freq, heads slowest, pairs fastest
//   list     of integers: the axis of each pair; empty if all are axis 0
//
// The frequencies contain base and scaling. The softmax multiplier and the
// queries' factor are not part of the rotation.
//
// In Python, for the plain encoding of 4 half-split channels, base 10000, one
// axis (inv_freq 1 and 0.01):
//
//   struct.pack("<9qd4q2dq", 1, 0, 4, 1, 1, 1, 0, 0, 1, 1.0, 0, 0, 1, 2,
//               1.0, 0.01, 0)

#pragma once

#include <string>

#include "core/rope/frequencies.h"

namespace posenc::core::interpretation {

std::string ContentHash(const ResolvedRope& rope);

}  // namespace posenc::core::interpretation
