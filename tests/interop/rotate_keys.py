"""Makes keys, in torch if installed or else in NumPy, and rotates them through the
Python client. The client's own Python runs it.

    rotate_keys.py TARGET FOLDER

Writes k.bf16 and rotated.bf16, bfloat16 [1, 16, 2, 64].
"""

import sys
from pathlib import Path

import posenc

SHAPE = (1, 16, 2, 64)


def make_keys():
    """Returns keys, and a function that returns the bytes of such an
    array."""
    try:
        import torch
    except ImportError:
        import ml_dtypes
        import numpy
        keys = numpy.random.default_rng(5).standard_normal(SHAPE).astype(ml_dtypes.bfloat16)
        return keys, lambda array: array.tobytes()
    keys = torch.randn(SHAPE, generator=torch.Generator().manual_seed(5)).to(torch.bfloat16)
    return keys, lambda tensor: tensor.contiguous().view(torch.int16).numpy().tobytes()


def main(target, folder):
    keys, to_bytes = make_keys()
    with posenc.Client(target) as client:
        _, rotated = client.apply_rope(None, keys, rope={"pairing": "half_split"}, positions=0,
                                       layout="bshd")
    if type(rotated) is not type(keys):
        sys.exit(f"{type(keys)} went in, {type(rotated)} came out")
    Path(folder, "k.bf16").write_bytes(to_bytes(keys))
    Path(folder, "rotated.bf16").write_bytes(to_bytes(rotated))


if __name__ == "__main__":
    main(*sys.argv[1:])
