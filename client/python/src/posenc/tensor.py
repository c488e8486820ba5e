"""Tensor, the contract's form of an array."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Optional

import numpy

from .errors import invalid
from .wire import REPEATED, Buffer, Message
from .wire import field as _field


class Dtype(IntEnum):
    UNSPECIFIED = 0
    FLOAT32 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    FLOAT64 = 4
    INT32 = 5
    INT64 = 6
    FLOAT8_E4M3FN = 7
    FLOAT8_E5M2 = 8


# Bytes of an element; 0 for a Dtype that this version does not know.
ELEMENT_BYTES = {1: 4, 2: 2, 3: 2, 4: 8, 5: 4, 6: 8, 7: 1, 8: 1}


def numpy_dtype(dtype: int) -> numpy.dtype[Any]:
    """Returns the numpy type of a Dtype."""
    name = Dtype(dtype).name.lower()
    if dtype not in (Dtype.BFLOAT16, Dtype.FLOAT8_E4M3FN, Dtype.FLOAT8_E5M2):
        return numpy.dtype(name).newbyteorder("<")
    try:
        import ml_dtypes
    except ImportError:
        raise invalid("dtype", f"{name} arrays need ml_dtypes, or torch: dtype=torch.{name}") from None
    other: numpy.dtype[Any] = numpy.dtype(getattr(ml_dtypes, name))
    return other


@dataclass
class SharedMemory(Message):
    """A place in a file that client and server both map (shared.py)."""

    name: str = _field(1, "string")
    offset: int = _field(2, "int64")


@dataclass
class Tensor(Message):
    """A dense tensor: `data` holds its elements, little-endian and row-major.

    numpy.asarray(tensor) views them.
    """

    dtype: Dtype = _field(1, Dtype)
    shape: list[int] = _field(2, "int64", REPEATED)
    values: list[float] = _field(3, "double", REPEATED)
    data: Buffer = _field(15, "bytes")
    shared: Optional[SharedMemory] = _field(4, SharedMemory)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> numpy.ndarray[Any, Any]:
        # A server answers `values` with `values`.
        if self.values:
            array = numpy.array(self.values, numpy.float64).astype(numpy_dtype(self.dtype))
        else:
            array = numpy.frombuffer(self.data, numpy_dtype(self.dtype))
        array = array.reshape(self.shape)
        return array if dtype is None else array.astype(dtype, copy=False)
