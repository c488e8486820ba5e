"""The bound on the difference between moved keys and the keys that a class computes: caches.py
explains it."""

import math

import numpy
import posenc

# Unit roundoff by dtype.
UNIT = {"float32": 2.0**-24, "bfloat16": 2.0**-8}


def _in_pairs(keys, spec):
    """Returns (first channels of the rotated pairs, second channels, the other channels)."""
    width = spec.rotary_dim
    begin = keys.shape[-1] - width if spec.slice == posenc.messages.RotarySlice.TRAILING else 0
    rotated = keys[..., begin : begin + width]
    rest = numpy.concatenate([keys[..., :begin], keys[..., begin + width :]], -1)
    if (spec.output_pairing or spec.pairing) == posenc.messages.Pairing.HALF_SPLIT:
        return *numpy.split(rotated, 2, -1), rest
    return rotated[..., 0::2], rotated[..., 1::2], rest


def ratio(moved, expected, unit, resolved, start, shift, changed):
    """Returns the largest difference, in units of the bound.

    moved, expected: float64 [batch, heads, tokens, head_dim]. resolved: the encoding after the move. changed: its
    frequencies differ from those before the move.
    """
    x, y, rest = _in_pairs(moved, resolved.spec)
    u, v, other = _in_pairs(expected, resolved.spec)
    if rest.tobytes() != other.tobytes():
        return math.inf
    length = numpy.hypot(u, v)
    w = numpy.abs(numpy.array(resolved.inv_freq))
    both = 2 * (start + numpy.arange(moved.shape[2]))[:, None] + shift
    distance = both if changed else abs(shift)
    angle = w * 2.0**-24 * (both + (3 + numpy.abs(numpy.log(numpy.maximum(w, 1e-30)))) * distance)
    bound = length * (angle + 12 * unit) + 1e-30
    return max((numpy.abs(a - b) / bound).max().item() for a, b in ((x, u), (y, v)))
