"""Correctly rounded powers, cosines and sines, which replace torch's."""

import numpy
import torch
from torch.overrides import TorchFunctionMode

COSINES = (torch.cos, torch.Tensor.cos)
SINES = (torch.sin, torch.Tensor.sin)


def rounded_power(base, exponent):
    base = torch.as_tensor(base, dtype=torch.float32).double()
    return (base ** exponent.double()).float()


class Functions(TorchFunctionMode):
    """Replaces powers, cosines and sines of float32 tensors. The kind "rounded"
    rounds them correctly; the kind "angles" returns the angle instead of its
    cosine or sine."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__rpow__ and args[0].dtype == torch.float32:
            return rounded_power(args[1], args[0])
        if func is torch.pow and torch.is_tensor(args[1]) and args[
                1].dtype == torch.float32:
            return rounded_power(args[0], args[1])
        if func is torch.polar and args[1].dtype == torch.float32:
            wide = args[1].double()
            return torch.complex(wide.cos().float(), wide.sin().float())
        if func in COSINES + SINES and args[0].dtype == torch.float32:
            if self.kind == "angles":
                return args[0].clone()
            wide = args[0].double()
            wide = wide.cos() if func in COSINES else wide.sin()
            return wide.float()
        return func(*args, **(kwargs or {}))


def ordinal(values):
    """Maps float32 numbers to integers whose differences count units
    in the last place."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.int32)
    bits = bits.astype(numpy.int64)
    return numpy.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def hexed(values):
    return numpy.ascontiguousarray(values, "<f4").tobytes().hex()


def heads(tokens, count, width):
    """Numbers in [-1, 1) with 24 bits, the same in every language."""
    t, h, c = numpy.meshgrid(
        numpy.arange(tokens), numpy.arange(count), numpy.arange(width),
        indexing="ij",
    )
    hashed = ((t * 73 + h * 31 + c * 17 + 5) * 2654435761) % 2**32 >> 8
    return torch.tensor(hashed / 2.0**23 - 1, dtype=torch.float32)


def rows_of(count):
    return [0, count // 3, count // 2, count - 1]
