"""Computes rotations directly from the formula, in float64."""

import numpy


def angles(positions, rotary_dim, theta=10000.0):
    """Returns the angles, [..., rotary_dim / 2]."""
    frequencies = theta ** (-2.0 * numpy.arange(rotary_dim // 2) / rotary_dim)
    return numpy.asarray(positions, numpy.float64)[..., None] * frequencies


def rotate(x, positions, rotary_dim=None, theta=10000.0, interleaved=False, sign=1.0):
    """x is [B, S, H, D]; positions broadcast to [B, S]."""
    x = numpy.asarray(x).astype(numpy.float64)
    d = rotary_dim or x.shape[-1]
    phi = numpy.broadcast_to(angles(positions, d, theta), (*x.shape[:2], d // 2))[:, :, None, :] * sign
    out = x.copy()
    first, second = (slice(0, d, 2), slice(1, d, 2)) if interleaved else (slice(0, d // 2), slice(d // 2, d))
    a, b = x[..., first], x[..., second]
    out[..., first] = a * numpy.cos(phi) - b * numpy.sin(phi)
    out[..., second] = a * numpy.sin(phi) + b * numpy.cos(phi)
    return out


# Largest errors relative to the length of a pair, by the dtype of the result. They
# allow for the rounding of the rotation and of the result.
TOLERANCE = {
    "float32": 2.0**-21,
    "float64": 2.0**-49,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}


def assert_near(actual, expected):
    actual = numpy.asarray(actual)
    error = numpy.abs(actual.astype(numpy.float64) - expected).max(initial=0)
    assert error <= TOLERANCE[actual.dtype.name] * max(1.0, numpy.abs(expected).max(initial=0)), error
