"""What a case is made of: a claim, a request, and, where it is wrong, the
error that answers it."""

from exact import mpf, nearest

HALF, INTERLEAVED = "PAIRING_HALF_SPLIT", "PAIRING_INTERLEAVED"
INVALID, OUT_OF_RANGE = "INVALID_ARGUMENT", "OUT_OF_RANGE"


def case(name, rpc, **request):
    return {"name": name, "rpc": rpc, "request": request}


def bad(name, rpc, reason, field, code=INVALID, **request):
    return {"name": name, "rpc": rpc, "request": request,
            "expect": {"code": code, "reason": "ERROR_REASON_" + reason,
                       "field": field}}


def source(length=None, **spec):
    """A RopeSource of a specification; half-split unless it says otherwise."""
    out = {"spec": {"pairing": HALF, **spec}}
    if length is not None:
        out["sequenceLength"] = length
    return out


class Numbers:
    """Multiples of 1/64 in (-2, 2): exact in every element type but FP8."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        # Numerical Recipes' linear congruential generator.
        self.state = (1664525 * self.state + 1013904223) % 2**32
        return ((self.state >> 16) % 255 - 127) / 64

    def float8(self, *shape, dtype):
        """The same, rounded to FP8, which has fewer of them."""
        tensor = self.tensor(*shape, dtype=dtype)
        tensor["values"] = [float(nearest(mpf(v), dtype))
                            for v in tensor["values"]]
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
