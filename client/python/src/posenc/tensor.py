"""Elements of tensors: their sizes, their types in numpy, and a tensor's view as an array."""

from __future__ import annotations

from typing import Any, Optional

import numpy

from .errors import invalid

# Size of an element in bytes, by Dtype. A Dtype that this version does not know has no entry.
ELEMENT_BYTES = {1: 4, 2: 2, 3: 2, 4: 8, 5: 4, 6: 8, 7: 1, 8: 1, 9: 1}
_NUMPY = {1: "<f4", 2: "<f2", 4: "<f8", 5: "<i4", 6: "<i8", 9: "|i1"}
_ML_DTYPES = {3: "bfloat16", 7: "float8_e4m3fn", 8: "float8_e5m2"}


def numpy_dtype(dtype: int) -> numpy.dtype[Any]:
    """Returns the numpy type of a Dtype."""
    if dtype in _NUMPY:
        return numpy.dtype(_NUMPY[dtype])
    name = _ML_DTYPES[dtype]
    try:
        import ml_dtypes
    except ImportError:
        raise invalid("dtype", f"{name} arrays need ml_dtypes, or torch: dtype=torch.{name}") from None
    other: numpy.dtype[Any] = numpy.dtype(getattr(ml_dtypes, name))
    return other


class AsArray:
    """The part of the class Tensor that is not generated. numpy.asarray(tensor) returns the tensor's elements."""

    def __array__(self: Any, dtype: Any = None, copy: Optional[bool] = None) -> numpy.ndarray[Any, Any]:
        # A server answers a tensor with `values` by a tensor with `values`.
        if self.values:
            array = numpy.array(self.values, numpy.float64).astype(numpy_dtype(self.dtype))
        else:
            array = numpy.frombuffer(self.data, numpy_dtype(self.dtype))
        array = array.reshape(self.shape)
        return array if dtype is None else array.astype(dtype, copy=False)
