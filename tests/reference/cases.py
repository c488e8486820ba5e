"""The parts of a case: a claim, a request, and, for a bad request, its
error."""

from exact import mpf, nearest
from integers import BLOCKS, CHANNELS

HALF, INTERLEAVED = "PAIRING_HALF_SPLIT", "PAIRING_INTERLEAVED"
INVALID, OUT_OF_RANGE = "INVALID_ARGUMENT", "OUT_OF_RANGE"


def case(name, rpc, **request):
    return {"name": name, "rpc": rpc, "request": request}


def bad(name, rpc, reason, field, code=INVALID, **request):
    return {"name": name, "rpc": rpc, "request": request,
            "expect": {"code": code, "reason": "ERROR_REASON_" + reason,
                       "field": field}}


def source(length=None, **spec):
    """Returns a RopeSource of a specification, half-split by default."""
    out = {"spec": {"pairing": HALF, **spec}}
    if length is not None:
        out["sequenceLength"] = length
    return out


class Numbers:
    """Returns multiples of 1/64 in (-2, 2), which are exact in every element
    type except FP8."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        # Numerical Recipes' linear congruential generator.
        self.state = (1664525 * self.state + 1013904223) % 2**32
        return ((self.state >> 16) % 255 - 127) / 64

    def float8(self, *shape, dtype):
        """Returns a tensor of such numbers, rounded to FP8."""
        tensor = self.tensor(*shape, dtype=dtype)
        tensor["values"] = [float(nearest(mpf(v), dtype))
                            for v in tensor["values"]]
        return tensor

    def int8(self, *shape):
        """Returns integers in [-127, 127]."""
        tensor = self.tensor(*shape, dtype="DTYPE_INT8")
        tensor["values"] = [int(64 * v) for v in tensor["values"]]
        return tensor

    def blocks(self, *shape, block_format):
        """Returns blocks of heads of shape[-1] channels. Their scales are about
        2^-7; scales of Q4_0 have both signs."""
        size = BLOCKS[block_format]
        tensor = self.int8(*shape[:-1], shape[-1] // CHANNELS * size)
        for i in range(0, len(tensor["values"]), size):
            tensor["values"][i + 1] = 0x20
            if block_format == "BLOCK_FORMAT_Q4_0" and i % 4:
                tensor["values"][i + 1] -= 0x80
        return tensor

    def tensor(self, *shape, dtype="DTYPE_FLOAT32"):
        count = 1
        for extent in shape:
            count *= extent
        return {"dtype": dtype, "shape": list(shape),
                "values": [self.next() for _ in range(count)]}


def given(values, *shape, dtype="DTYPE_FLOAT32"):
    return {"dtype": dtype, "shape": list(shape), "values": values}


def ids(values, *shape, dtype="DTYPE_INT64"):
    return {"ids": given(values, *(shape or (len(values),)), dtype=dtype)}
