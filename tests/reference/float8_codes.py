"""Prints hashes of ml_dtypes' roundings of float32 numbers, which
tests/core/simd/float8_test.cc compares with the kernels'.

    pip install numpy ml_dtypes && python3 tests/reference/float8_codes.py

The inputs are all float16 numbers, all bfloat16 numbers, and random numbers around
those of FP8. Each NaN becomes 0x7f, as in the contract; ml_dtypes keeps the sign.
Saturation is a clip before the rounding.
"""

import ml_dtypes
import numpy as np


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def random_bits(count):
    state = 1
    bits = np.empty(count, np.uint32)
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        bits[i] = state >> 32
    return bits


def random_floats(count):
    """Returns numbers of both signs, with all fractions, and exponents of 2^-27 to
    2^36."""
    bits = random_bits(count)
    return ((bits & 0x807FFFFF) | ((100 + (bits >> 23) % 64) << 23)).astype(np.uint32).view(np.float32)


def narrowed(floats, dtype, largest, finite):
    clipped = np.clip(floats, -largest, largest) if finite else floats
    with np.errstate(all="ignore"):
        codes = clipped.astype(dtype).view(np.uint8).copy()
    codes[np.isnan(codes.view(dtype).astype(np.float32))] = 0x7F
    return codes


SETS = {
    "float16": np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32),
    "bfloat16": (np.arange(65536, dtype=np.uint32) << 16).view(np.float32),
    "random": random_floats(65536),
}

for name, dtype, largest in (
    ("E4M3", ml_dtypes.float8_e4m3fn, np.float32(448)),
    ("E5M2", ml_dtypes.float8_e5m2, np.float32(57344)),
):
    for finite in (False, True):
        for of, floats in SETS.items():
            codes = narrowed(floats, dtype, largest, finite)
            print(name, "finite" if finite else "none", of, hex(fnv1a(codes.tobytes())))
