"""Rotary encoding from its formula, in float64, and error bounds for float32 and
bfloat16 results. Standard library only: it shares no code with the server or a
client."""

import math
import struct


def inverse_frequencies(rotary_dim, rope_theta=10000.0):
    """RoFormer's theta^(-2i/d)."""
    return [rope_theta ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)]


def rotate_head(head, position, frequencies):
    """Rotates half-split pairs (i, i + d/2) of a head to a position; channels
    after them pass through."""
    half = len(frequencies)
    out = list(head)
    for i, frequency in enumerate(frequencies):
        c, s = math.cos(position * frequency), math.sin(position * frequency)
        x, y = head[i], head[i + half]
        out[i], out[i + half] = x * c - y * s, x * s + y * c
    return out


def rotate(elements, heads, head_dim, positions, frequencies):
    """Rotates flat [tokens, heads, head_dim], each token to its position."""
    out = []
    for t, position in enumerate(positions):
        for h in range(heads):
            at = (t * heads + h) * head_dim
            out += rotate_head(elements[at:at + head_dim], position, frequencies)
    return out


def bound(elements, head_dim, rotary_dim, units, last=0.0):
    """Returns for each element `units` of 2^-24 of its pair's length (4 for
    rotation and 10 for reposition in float32, see the vectors' README), plus
    `last` times that length for the last rounding."""
    half, out = rotary_dim // 2, [0.0] * len(elements)
    for at in range(0, len(elements), head_dim):
        for i in range(half):
            length = math.hypot(elements[at + i], elements[at + i + half])
            out[at + i] = out[at + i + half] = length * (units * 2.0 ** -24 + last)
    return out


def misfit(actual, expected, bounds):
    """Returns the first element beyond its bound, as a text, or None."""
    if len(actual) != len(expected):
        return f"{len(actual)} elements, not {len(expected)}"
    for i, (a, e, b) in enumerate(zip(actual, expected, bounds)):
        if not abs(a - e) <= b:
            return f"element {i} is {a}, expected {e} within {b}"
    return None


def read_float32(path):
    data = path.read_bytes()
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def write_float32(path, elements):
    path.write_bytes(struct.pack(f"<{len(elements)}f", *elements))


def to_float32(elements):
    return list(struct.unpack(f"<{len(elements)}f", struct.pack(f"<{len(elements)}f", *elements)))


def read_bfloat16(path):
    data = path.read_bytes()
    bits = struct.unpack(f"<{len(data) // 2}H", data)
    return [struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in bits]
