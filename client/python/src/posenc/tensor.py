"""Tensor, the contract's form of an array."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Optional

import numpy

from .wire import REPEATED, Buffer, Message, invalid
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

# Types that numpy itself lacks.
ML_DTYPES = (Dtype.BFLOAT16, Dtype.FLOAT8_E4M3FN, Dtype.FLOAT8_E5M2)


def numpy_dtype(dtype: int) -> numpy.dtype[Any]:
    """Returns the numpy type of a Dtype."""
    name = Dtype(dtype).name.lower()
    if dtype in ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise invalid("dtype", f"{name} arrays need ml_dtypes, or torch: dtype=torch.{name}") from None
        other: numpy.dtype[Any] = numpy.dtype(getattr(ml_dtypes, name))
        return other
    found: numpy.dtype[Any] = numpy.dtype(name).newbyteorder("<")
    return found


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

    @classmethod
    def of_array(cls, array: Any, path: str) -> Tensor:
        from .arrays import borrow

        return borrow(array, path).tensor

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> numpy.ndarray[Any, Any]:
        # A server answers `values` with `values`.
        if self.values:
            array = numpy.array(self.values, numpy.float64).astype(numpy_dtype(self.dtype))
        else:
            array = numpy.frombuffer(self.data, numpy_dtype(self.dtype))
        array = array.reshape(self.shape)
        return array if dtype is None else array.astype(dtype, copy=False)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)
