"""Writes tests/data/kept.json: kept(r) (core/rope/kept.h) in 50-digit arithmetic.

    python3 tests/reference/kept.py > tests/data/kept.json

Frequencies are exact float64 numbers: the texts are their shortest forms,
which read back as the same numbers.
"""

import json
import math
import random

import mpmath

mpmath.mp.dps = 50


def kept(reference, other, distance):
    total = mpmath.mpf(0)
    for a, b in zip(reference, other):
        total += mpmath.cos(distance * (mpmath.mpf(a) - mpmath.mpf(b)))
    return total / len(reference)


def geometric(base, pairs, factor=1.0):
    return [base ** (-i / pairs) / factor for i in range(pairs)]


def ramp(base, pairs, factor, low, high):
    frequencies = []
    for i, w in enumerate(geometric(base, pairs)):
        share = min(max((i - low) / (high - low), 0.0), 1.0)
        frequencies.append(share * w / factor + (1 - share) * w)
    return frequencies


def main():
    rng = random.Random(7)
    cases = [
        ("linear against yarn", geometric(1e6, 64, 4.0), ramp(1e6, 64, 4.0, 23, 41)),
        ("two bases", geometric(1e4, 64), geometric(5e5, 64)),
        ("a rounded ramp", ramp(150000.0, 32, 32.0, 8.09, 17.4), ramp(150000.0, 32, 32.0, 8, 18)),
        ("last bits", geometric(1e4, 32), [math.nextafter(w, 0) for w in geometric(1e4, 32)]),
        ("random", [rng.uniform(-1, 1) for _ in range(16)], [rng.uniform(-1, 1) for _ in range(16)]),
        ("one pair", [1.0], [0.999]),
    ]
    distances = [1, 2, 3, 4, 5, 17, 1000, 4096, 5443, 8192, 20000, 131072, 1048575]
    distances += [2**26 + 1, 2**31 - 1, 2**31]
    distances += [rng.randrange(2**31) for _ in range(10)]
    written = [
        {
            "name": name,
            "reference": a,
            "other": b,
            "kept": [[r, mpmath.nstr(kept(a, b, r), 25)] for r in distances],
        }
        for name, a, b in cases
    ]
    print(json.dumps(written, separators=(",", ":")))


main()
