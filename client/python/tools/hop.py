"""Repositions the keys in a file. A test runs this program to pass a cache through the clients of all languages.

    python hop.py TARGET IN OUT SHIFT
"""

import sys
from pathlib import Path

import ml_dtypes
import numpy
import posenc


def main(target, source, destination, shift):
    k = numpy.frombuffer(Path(source).read_bytes(), ml_dtypes.bfloat16).reshape(1, 16, 2, 64)
    with posenc.Client(target) as client:
        moved = client.reposition(k, rope={"pairing": "half_split"}, shift=int(shift), layout="bshd")
    Path(destination).write_bytes(moved.tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
